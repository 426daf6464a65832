#!/bin/sh
if [ "$1" = --describe ]; then
  echo '{"name":"mark","description":"Mark.","approve":true,"parameters":{"type":"object"}}'
else
  echo marked it
fi
