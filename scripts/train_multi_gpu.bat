@echo off
rem SPDX-License-Identifier: Apache-2.0
rem Copyright the skein authors.
rem scripts\train_multi_gpu.bat CONFIG STAGE [key=value ...]: train_multi_gpu.sh in WSL2, from the
rem repository's folder. CONFIG is a path below that folder; its backslashes are turned round.
setlocal
if "%~2"=="" (
  echo usage: train_multi_gpu.bat CONFIG STAGE [key=value ...] 1>&2
  exit /b 2
)
set "config=%~1"
wsl.exe bash scripts/train_multi_gpu.sh "%config:\=/%" %2 %3 %4 %5 %6 %7 %8 %9
