"""[nova_notifications]: where Nova notifies that instances have left a host."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "nova_notifications",
    title="Notifications of Nova",
    help="With [notifications] notification_format = versioned and [oslo_messaging_notifications] driver = "
    "messagingv2 in nova.conf, Nova reports the life cycle of virtual machines. With these notifications the "
    "slots of a machine that has left its host are released immediately, even if the agent of that host does not "
    "respond; without them, within two minutes.",
)

OPTS = [
    cfg.StrOpt(
        "transport_url",
        secret=True,
        help="Message bus of Nova's notifications: the transport_url of [oslo_messaging_notifications] in nova.conf, "
        "or that of its [DEFAULT]. If it is not set, the schedulers do not listen to notifications.",
    ),
    cfg.StrOpt(
        "topic",
        default="versioned_notifications",
        help="One of versioned_notifications_topics of [notifications] in nova.conf.",
    ),
    cfg.StrOpt("exchange", default="nova", help="control_exchange of nova.conf."),
    cfg.StrOpt(
        "pool",
        default="fpga_pool",
        help="Name of the queue that all schedulers of this pool share: each notification reaches one of them, and "
        "listeners on other queues receive it as well.",
    ),
]
