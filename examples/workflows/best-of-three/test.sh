# Tests version.sh. Exits with code 1 if a test fails.
failed=0
check() {
    got=$(sh version.sh "$1" "$2")
    if [ "$got" != "$3" ]; then
        echo "FAILED: version.sh $1 $2 printed \"$got\", expected \"$3\""
        failed=1
    fi
}
check 10 9 newer
check 2 1 newer
check 9 10 ""
check 9 9 ""
exit $failed
