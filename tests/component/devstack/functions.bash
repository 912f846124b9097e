#!/bin/bash
# What the plug-in calls of DevStack, as far as a test without a DevStack host needs it.  Each call is written to $LOG.

record() { echo "$*" >>"$LOG"; }

# Sections are repeated; of an option that is given twice the last counts, as everywhere in oslo.config.
iniset() {
    [ "$1" != "-sudo" ] || shift
    record "iniset $*"
    printf '[%s]\n%s = %s\n' "$2" "$3" "$4" >>"$1"
}

iniset_multiline() {
    record "iniset $*"
    printf '[%s]\n' "$2" >>"$1"
    printf "$3 = %s\n" "${@:4}" >>"$1"
}

iniget() { sed -n "s/^$3 = //p" "$1" | tail -n 1; }
iniset_rpc_backend() { iniset "$2" "$3" transport_url "$(get_transport_url "$4")"; }
configure_keystone_authtoken_middleware() { iniset "$1" "${3:-keystone_authtoken}" username "$2"; }
configure_keystoneauth() { iniset "$1" "$3" auth_type password; }
get_transport_url() { echo "rabbit://stackrabbit:secret@127.0.0.1:5672/$1"; }
get_notification_url() { get_transport_url; }
ipv6_unquote() { echo "$1" | tr -d '[]'; }
trueorfalse() { echo "${!2:-$1}"; }
die() { record "die ${*:2}"; exit 1; }
database_connection_url() { echo "sqlite:///$LOG.$1.sqlite"; }
get_python_exec_prefix() { echo "$PREFIX"; }
is_service_enabled() { [[ ",$ENABLED_SERVICES," == *",${1/%n-cpu-*/n-cpu},"* ]]; }

enable_service() {
    local name
    for name in "$@"; do
        [[ ",$DISABLED_SERVICES," == *",$name,"* ]] || is_service_enabled "$name" || ENABLED_SERVICES+=",$name"
    done
}

run_process() { ! is_service_enabled "$1" || record "run_process $1|$2|$4"; }
stop_process() { ! is_service_enabled "$1" || record "stop_process $1"; }
sudo() { "$@"; }
virsh() { echo "stack.example.org"; }
define_plugin() { :; }
echo_summary() { :; }
# There is an image, and no flavor yet.
openstack() { record "openstack $*"; [[ "$*" != *"flavor show"* ]]; }
for name in async_wait create_service_user get_or_create_endpoint get_or_create_service recreate_database \
    restart_service rpc_backend_add_vhost setup_develop; do
    eval "$name() { record \"$name \$*\"; }"
done
