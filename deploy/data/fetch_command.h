// `longhaul data fetch`: downloads files at addresses (base/remote/address.h) for `longhaul data
// prepare`, which calls it. Addresses come by standard input, because those of web servers may be
// signed; credentials come from the user's environment. Not for users.
#pragma once

namespace CLI {
class App;
}

namespace longhaul {

// Adds the subcommand to `data`, which owns it. When it runs, it stores the program's exit code in
// `*exit_code`, which must outlive `data`.
void AddFetchCommand(CLI::App* data, int* exit_code);

}  // namespace longhaul
