# shellcheck shell=bash
# What a version of kOps is: it becomes a folder of a mirror, and part of a script. Scripts source this, and then call:
#
#   is_version V    whether it is one as 1.36.0 or 1.37.0-alpha.1

is_version() { [[ $1 =~ ^[0-9]+\.[0-9]+\.[0-9]+([-+.][0-9A-Za-z.+-]+)?$ ]]; }
