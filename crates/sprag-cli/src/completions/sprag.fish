# Completions of sprag for fish: sprag completions fish | source
function __sprag_complete
    set -l words (commandline -opc) (commandline -ct)
    sprag __complete -- $words[2..] 2>/dev/null
end
complete -c sprag -a '(__sprag_complete)'
