echo "Hello, $1!"
