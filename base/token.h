// Reads token files (--token-file). A token is a join token (proto/identity/join_token.h) or,
// without TLS, the shared secret of an installation, with which any caller can join as a worker and
// command. The shared secret travels as `authorization: Bearer <token>` (proto/rpc/auth.h).
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace longhaul {

inline constexpr size_t kMinTokenBytes = 16;
inline constexpr size_t kMaxTokenBytes = 4096;

// Returns the first line of the file, trimmed: printable ASCII, kMinTokenBytes to kMaxTokenBytes.
// Logs a warning if all users of the machine can read the file. kFailedPrecondition names the fault
// and says how to make a good file.
StatusOr<std::string> LoadToken(const std::string& path);

// Writes a new random token (256 bits) to `path`, readable only by its owner. kAlreadyExists if the
// file exists, because a token in use must not be overwritten.
Status GenerateTokenFile(const std::string& path);

}  // namespace longhaul
