# shellcheck shell=bash
# Moves a finished folder into its place. Scripts source this, make a folder WORK beside FOLDER, and call:
#
#   is_free FOLDER        whether FOLDER is missing, or an empty folder of this user and no link
#   move_to WORK FOLDER   renames WORK to FOLDER, which may be an empty folder. Fails if anything else is there: another user
#                         may have made it since is_free

is_free() {
    [[ ! -L $1 ]] || return 1
    [[ ! -e $1 ]] || [[ -d $1 && -O $1 && -z $(ls -A "$1") ]]
}

move_to() { mv -T "$1" "$2"; }
