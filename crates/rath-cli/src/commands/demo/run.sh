#!/bin/sh
. ./version.sh
failed=0

check() {
    if eval "$1"; then echo "ok      $1"; else echo "FAILED  $1"; failed=1; fi
}

check 'newer 2.0.0 1.9.9'
check 'newer 1.2.1 1.2.0'
check 'newer 1.2 1.1.9'
check '! newer 1.0.0 1.0.0'
check 'newer 1.10.0 1.9.3'
check '! newer 1.9.3 1.10.0'
exit $failed
