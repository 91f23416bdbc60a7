# Completions of sprag for bash: source <(sprag completions bash)
_sprag() {
    local line="${COMP_LINE:0:COMP_POINT}" words
    # Colons split words in bash; URLs and lock names have them.
    read -ra words <<<"$line"
    [[ "$line" == *" " ]] && words+=("")
    local current="${words[-1]}"
    mapfile -t COMPREPLY < <(sprag __complete -- "${words[@]:1}" 2>/dev/null)
    if [[ "$current" == *:* && "$COMP_WORDBREAKS" == *:* ]]; then
        local colon="${current%"${current##*:}"}"
        COMPREPLY=("${COMPREPLY[@]#"$colon"}")
    fi
    # Names of locks are written by others, and may be commands.
    local at
    for at in "${!COMPREPLY[@]}"; do
        [[ "${COMPREPLY[at]}" == *[!A-Za-z0-9/._+:@%,=-]* ]] &&
            printf -v "COMPREPLY[$at]" %q "${COMPREPLY[at]}"
    done
    [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *: ]] && compopt -o nospace
}
complete -o default -F _sprag sprag
