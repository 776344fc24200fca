# Compares version numbers, e.g. 1.10.0 and 1.9.3.

# Whether a single part is greater than another.
greater() {
    [ "$1" \> "$2" ]
}

# Whether version $1 is newer than version $2.
newer() {
    a=$1. b=$2.
    while [ -n "$a$b" ]; do
        x=${a%%.*} y=${b%%.*}
        a=${a#*.} b=${b#*.}
        greater "${x:-0}" "${y:-0}" && return 0
        greater "${y:-0}" "${x:-0}" && return 1
    done
    return 1
}
