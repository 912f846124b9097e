#!/usr/bin/env bash
# From a running Nova to a first virtual machine with an accelerator, on a host that is controller and compute node.
# As root, with the configuration in place and an administrator's openrc file sourced: first-vm.rst.
set -o errexit -o nounset -o pipefail

# Where things are.  On a host with packages and systemd only image and network need to be named.
IMAGE=${IMAGE:?name an image} NETWORK=${NETWORK:?name a network}
FUNCTION=${FUNCTION:-sha256} BOARD=${BOARD:-demo}
CONF=${FPGA_POOL_CONF:-/etc/fpga_pool/fpga_pool.conf}
KEYS=${FPGA_POOL_KEYS:-/etc/fpga_pool/keys}
SHIPPED=${FPGA_POOL_SHIPPED:-$(dirname "$(command -v fpga-pool-manage)")/../etc/fpga_pool}
HOOK=${FPGA_POOL_HOOK:-/etc/libvirt/hooks/qemu.d/fpga_pool}
SYSTEMCTL=${SYSTEMCTL:-systemctl}
export OS_PLACEMENT_API_VERSION=1.29

# 1 - 3: the pool's database, keys, and what is loaded into its slots.
fpga-pool-manage --config-file "$CONF" db sync
fpga-pool-manage --config-file "$CONF" keys create --directory "$KEYS"
fpga-pool-manage --config-file "$CONF" bitstreams stock --board "$BOARD" --key "$KEYS/bitstreams.pem"

# 4, 5: libvirt asks the agent before a guest starts, Nova finds the plug-in, the pool runs.
install -D -m 755 "$SHIPPED/libvirt-qemu-hook" "$HOOK"
"$SYSTEMCTL" restart libvirtd fpga-pool-scheduler fpga-pool-agent nova-api nova-scheduler

# 6: the pool accepts the key that the agent offers; Placement knows of slots within seconds; Nova puts machines on a
# host again within a minute of libvirtd's restart.
# shellcheck disable=SC2016  # the inner shell expands it
timeout 180 sh -c \
    'until fpga-pool-manage --config-file "$0" host approve --all && \
        openstack allocation candidate list --resource CUSTOM_FPGA_SLOT=1 --resource MEMORY_MB=1 \
        --forbidden COMPUTE_STATUS_DISABLED --limit 1 -f value | grep .; do sleep 2; done' "$CONF"

# 7: a guest of this image has what the channels of accelerators are plugged into.
openstack image set --property hw_qemu_guest_agent=yes "$IMAGE"

# 8, 9: a flavor, and a machine with an accelerator; it is ACTIVE when its slot is loaded.
fpga-pool-manage --config-file "$CONF" flavor create "fpga.$FUNCTION" --function "$FUNCTION" \
    --ram "${RAM_MIB:-512}" --disk "${DISK_GIB:-1}" --vcpus 1
openstack server create --flavor "fpga.$FUNCTION" --image "$IMAGE" --network "$NETWORK" --wait first-accelerated
