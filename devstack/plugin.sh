#!/bin/bash
#
# DevStack plug-in of fpga_pool.  local.conf: enable_plugin fpga_pool REPOSITORY main

source "$FPGA_POOL_DIR/devstack/lib/fpga_pool"

if [[ "$1" == "stack" && "$2" == "install" ]]; then
    echo_summary "Installing fpga_pool"
    install_fpga_pool

elif [[ "$1" == "stack" && "$2" == "post-config" ]]; then
    echo_summary "Configuring fpga_pool"
    configure_fpga_pool
    if is_service_enabled n-sch; then
        configure_nova_for_fpga_pool
    fi
    if _fpga_pool_has_guests; then
        install_fpga_pool_hook
    elif is_service_enabled n-cpu && [[ "$VIRT_DRIVER" == "fake" ]]; then
        configure_fake_computes_for_fpga_pool
    fi
    if is_service_enabled fpga-pool-scheduler; then
        init_fpga_pool
    fi

elif [[ "$1" == "stack" && "$2" == "extra" ]]; then
    # Placement now knows the compute nodes; the pool adds the accelerators below each of them.
    echo_summary "Starting fpga_pool"
    start_fpga_pool
    if is_service_enabled key && is_service_enabled fpga-pool-api; then
        register_fpga_pool_api
    fi
    if [[ "$FPGA_POOL_GANG_RUNNER" == "nova" && -n "$FPGA_POOL_GANG_PCPUS" ]] && is_service_enabled n-api; then
        create_fpga_pool_gang_flavor
    fi
    if is_service_enabled n-api && is_service_enabled fpga-pool-scheduler; then
        create_fpga_pool_flavors
        if [[ "${NOVA_USE_UNIFIED_LIMITS:-False}" == "True" ]]; then
            limit_fpga_pool_slots
        fi
    fi
    if is_service_enabled g-api && _fpga_pool_has_guests; then
        prepare_fpga_pool_image
    fi

elif [[ "$1" == "unstack" ]]; then
    stop_fpga_pool

elif [[ "$1" == "clean" ]]; then
    cleanup_fpga_pool
fi
