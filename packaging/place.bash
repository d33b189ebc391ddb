# shellcheck shell=bash
# Where a folder that is made beside it is moved to once it is whole. Scripts source this, and then call:
#
#   is_free FOLDER        whether it is not there, or empty, of this user's own and no link
#   move_to WORK FOLDER   moves it there, in the place of an empty folder, and fails where there is anything else: what was free
#                         may have been made by another user since

is_free() {
    [[ ! -L $1 ]] || return 1
    [[ ! -e $1 ]] || [[ -d $1 && -O $1 && -z $(ls -A "$1") ]]
}

move_to() { mv -T "$1" "$2"; }
