#!/usr/bin/env bash
# The steps of the composite action beside this file: night.sh install | fetch | measure | save.
#
# Inputs come as environment variables (NIGHT_...) and never as text inside a command. What must outlive the
# checkout lies in $state on the runner: its runs, and a clone of the branch with baselines and history.
set -euo pipefail

series=$(printf %s "$NIGHT_SERIES" | tr -c 'A-Za-z0-9._-' '_')
[ "${series#.}" = "$series" ] || series=_$series # ./shapes.csv; and no folder above
state=${NIGHT_STATE:-$HOME/tile-oracle-nights/$GITHUB_REPOSITORY}/$series
clone=$state/branch
python=${NIGHT_PYTHON:-$state/venv/bin/python}
remote=$GITHUB_SERVER_URL/$GITHUB_REPOSITORY

if [ -n "${NIGHT_TOKEN:-}" ]; then
    # In the environment, so that no command line shows it.
    export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="http.$GITHUB_SERVER_URL/.extraheader"
    GIT_CONFIG_VALUE_0="AUTHORIZATION: basic $(printf 'x-access-token:%s' "$NIGHT_TOKEN" | base64 -w0)"
    export GIT_CONFIG_VALUE_0
fi

install() {
    mkdir -p "$state"
    if [ -z "${NIGHT_PYTHON:-}" ]; then
        [ -x "$python" ] || python3 -m venv "$state/venv"
        "$python" -m pip install --quiet --disable-pip-version-check "$GITHUB_ACTION_PATH/../../.."
    fi
    "$python" -m tile_oracle.cli --version
}

# What a night that was killed, or could not push, left in the clone is pushed first.
fetch() {
    if [ -d "$clone/.git" ]; then
        save
    fi
    rm -rf "$clone"
    local status=0
    git ls-remote --exit-code --heads "$remote" "refs/heads/$NIGHT_BRANCH" > /dev/null || status=$?
    case $status in
    0) git clone --quiet --depth 1 --branch "$NIGHT_BRANCH" "$remote" "$clone" ;;
    2) # no such branch yet: this is the first night
        git init --quiet "$clone"
        git -C "$clone" symbolic-ref HEAD "refs/heads/$NIGHT_BRANCH"
        git -C "$clone" remote add origin "$remote"
        ;;
    *)
        echo "::error::the branch $NIGHT_BRANCH of $remote cannot be read, so there is nothing to judge by"
        exit "$status"
        ;;
    esac
    mkdir -p "$clone/$series"
}

measure() {
    local more=() line status=0
    [ -z "${NIGHT_KERNEL_SET:-}" ] || more+=("--kernel-set=$NIGHT_KERNEL_SET")
    [ -z "${NIGHT_CK_TILE:-}" ] || more+=("--ck-tile=$NIGHT_CK_TILE")
    [ -z "${NIGHT_MODEL:-}" ] || more+=("--model=$NIGHT_MODEL")
    [ -z "${NIGHT_BUDGET:-}" ] || more+=("--budget=$NIGHT_BUDGET")
    [ -z "${NIGHT_ALLOW:-}" ] || more+=("--allow=$NIGHT_ALLOW")
    [ "${NIGHT_UPDATE_BASELINE:-false}" != true ] || more+=(--update-baseline)
    while IFS= read -r line; do # one option a line
        [ -z "$line" ] || more+=("$line")
    done <<< "${NIGHT_OPTIONS:-}"
    "$python" -m tile_oracle.cli night --problem-set "$NIGHT_PROBLEM_SET" --target "$NIGHT_TARGET" \
        --state "$state" --kept "$clone/$series" --unfinished "$NIGHT_UNFINISHED" \
        --summary "${GITHUB_STEP_SUMMARY:-/dev/null}" -- "${more[@]}" || status=$?
    local nights=("$state"/nights/*)
    echo "runs=${nights[-1]}" >> "${GITHUB_OUTPUT:-/dev/null}"
    return "$status"
}

save() {
    cd "$clone"
    git add --all
    if ! git diff --cached --quiet; then
        git -c user.name=tile-oracle -c user.email=tile-oracle@localhost commit --quiet -m "Night of $series"
    fi
    git rev-parse --quiet --verify HEAD > /dev/null || return 0 # nothing was ever kept
    local attempt
    for attempt in 1 2 3 4 5; do
        if git push --quiet origin "HEAD:refs/heads/$NIGHT_BRANCH"; then
            cd "$state"
            return 0
        fi
        # Another series has pushed meanwhile. Each has a folder of its own, so there is nothing to merge by hand.
        git fetch --quiet origin "$NIGHT_BRANCH" || break
        git -c user.name=tile-oracle -c user.email=tile-oracle@localhost rebase --quiet FETCH_HEAD ||
            { git rebase --abort; break; }
    done
    echo "::error::baselines and history could not be pushed to $NIGHT_BRANCH; they stay in $clone: push or remove it"
    return 1
}

case ${1:-} in
install | fetch | measure | save) "$1" ;;
*)
    echo "night.sh install | fetch | measure | save" >&2
    exit 2
    ;;
esac
