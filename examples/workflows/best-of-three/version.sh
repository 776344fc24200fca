# Prints "newer" if version $1 is newer than version $2.
if [ "$1" \> "$2" ]; then
    echo newer
fi
