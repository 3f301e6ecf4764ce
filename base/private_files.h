// Keeps what this project's programs write from other accounts of the machine: keys, state, users'
// data, checkpoints and logs.
#pragma once

#include <string>

#include "base/status.h"

namespace longhaul {

// Makes every file and folder that this process creates from now on private (umask 077), also in
// the programs that it starts. Call it first in main(), before there are threads.
void KeepFilesPrivate();

// Makes the folder and its parents, as MakeDirectories, and takes all rights to it from other
// accounts if it belongs to this one. A folder for everybody, such as /tmp (sticky), stays as it
// is. Errors: by errno.
Status MakePrivateDirectories(const std::string& path);

}  // namespace longhaul
