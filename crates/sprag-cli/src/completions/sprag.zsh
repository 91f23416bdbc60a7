#compdef sprag
# Completions of sprag for zsh: source <(sprag completions zsh)
_sprag() {
    local -a answers
    answers=("${(@f)$(sprag __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    answers=("${(@)answers:#}")
    if (( ${#answers} )); then
        compadd -- "${answers[@]}"
    else
        _files
    fi
}
compdef _sprag sprag
