// Reads token files (--token-file). With TLS, a token is a join token
// (proto/identity/join_token.h). Without TLS, it is the shared secret of an installation: a caller
// who has it can be a worker and give commands. Callers send `authorization: Bearer <token>` with
// this secret (proto/rpc/auth.h).
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace longhaul {

inline constexpr size_t kMinTokenBytes = 16;
inline constexpr size_t kMaxTokenBytes = 4096;

// Returns the first line of the file, trimmed: printable ASCII, kMinTokenBytes to kMaxTokenBytes.
// Logs a warning if all users of the machine can read the file. kFailedPrecondition: the file
// cannot be read or has no such line; the message says how to make a good file.
StatusOr<std::string> LoadToken(const std::string& path);

// Writes a new random token (256 bits, a shared secret) to `path`, readable only by its owner.
// kAlreadyExists: the file exists, and a token in use must not be overwritten. Other errors: by
// errno.
Status GenerateTokenFile(const std::string& path);

}  // namespace longhaul
