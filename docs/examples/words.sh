#!/bin/sh
#HET --name words --time 5m --memory 1G
#HET --output 'words-{id}.txt'
# The ten most frequent words of a text file.
set -e
tr -cs '[:alpha:]' '\n' < "$1" | tr '[:upper:]' '[:lower:]' | sort | uniq -c | sort -rn | head
