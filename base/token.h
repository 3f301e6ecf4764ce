// Reads token files (--token-file). A token is a join token (proto/identity/join_token.h) or,
// without TLS, the shared secret of an installation, which lets anybody join as a worker and
// command. On the wire the latter is `authorization: Bearer <token>` (proto/rpc/auth.h).
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace longhaul {

inline constexpr size_t kMinTokenBytes = 16;
inline constexpr size_t kMaxTokenBytes = 4096;

// The first line of the file, trimmed: printable ASCII, kMinTokenBytes to kMaxTokenBytes. Logs a
// warning if everybody on the machine can read the file. kFailedPrecondition says what is wrong and
// how to make a good file.
StatusOr<std::string> LoadToken(const std::string& path);

// Writes a new random token (256 bits) to `path`, readable by its owner alone. kAlreadyExists if
// the file exists: a token in use is never overwritten.
Status GenerateTokenFile(const std::string& path);

}  // namespace longhaul
