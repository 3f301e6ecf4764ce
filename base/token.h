// The shared secret of an installation: who knows it may join and command. It stands in a file that
// coordinator, workers and CLI read (--token-file); it goes over the wire as
// `authorization: Bearer <token>` (proto/rpc/auth.h).
#ifndef LONGHAUL_BASE_TOKEN_H_
#define LONGHAUL_BASE_TOKEN_H_

#include <cstddef>
#include <string>

#include "base/status.h"

namespace longhaul {

inline constexpr size_t kMinTokenBytes = 16;
inline constexpr size_t kMaxTokenBytes = 4096;

// The first line of the file, without white space at its ends: printable ASCII, kMinTokenBytes to
// kMaxTokenBytes. Logs a warning if others than owner and group may read the file.
// kFailedPrecondition saying what is wrong and how to make a good file.
StatusOr<std::string> LoadToken(const std::string& path);

// Writes a new random token (256 bits) to `path`, readable by its owner alone. kAlreadyExists where
// there is a file: a token in use is never overwritten.
Status GenerateTokenFile(const std::string& path);

}  // namespace longhaul

#endif  // LONGHAUL_BASE_TOKEN_H_
