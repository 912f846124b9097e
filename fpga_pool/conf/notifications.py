"""[nova_notifications]: where Nova notifies that instances have left a host."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "nova_notifications",
    title="Nova's notifications",
    help="With [notifications] notification_format = versioned and [oslo_messaging_notifications] driver = messagingv2 "
    "in nova.conf, Nova tells of what virtual machines do. Where the schedulers hear it, slots of a machine that has "
    "left its host are given back at once, even if nothing is heard from the agent of that host; without it, within "
    "two minutes.",
)

OPTS = [
    cfg.StrOpt(
        "transport_url",
        secret=True,
        help="Where Nova sends its notifications to: the transport_url of [oslo_messaging_notifications] in nova.conf, "
        "or that of its [DEFAULT]. Without it nothing is listened to.",
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
        help="Name of the queue of their own that all schedulers of this pool share: each notification reaches one of "
        "them, and other listeners hear it as well.",
    ),
]
