// Reads files, or ranges of them, from web servers over http and https, at addresses that this
// machine's user wrote: any host, by one attempt (client.h).
//
// Thread-safe. Calls block. They give up (kUnavailable) after 15 s without a connection or 60 s
// without a byte.
// Errors:
//   kInvalidArgument     not an address of a web server
//   kNotFound            the server has no such file
//   kPermissionDenied    the server refuses access (401, 403)
//   kUnavailable         no connection, an answer that broke off, a server in trouble: try again
//   kFailedPrecondition  the answer is of no use: no ranges, no size, a wrong certificate
//   kCancelled           `given_up` has returned true
//   kInternal            libcurl cannot start
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/http/client.h"
#include "base/status.h"

namespace longhaul::http {

// Whether a text begins with "http://" or "https://".
bool IsAddress(std::string_view text);
// Returns the address of `file`, a path relative to the folder at `address`. Escapes `file`, which
// must not be escaped yet.
std::string AddressOf(std::string_view address, std::string_view file);

// Returns the file's size in bytes.
StatusOr<uint64_t> SizeOf(const std::string& address, const GivenUp& given_up = {});
// Reads the whole file. kFailedPrecondition: it is longer than `limit` bytes.
StatusOr<std::string> ReadAll(const std::string& address, uint64_t limit,
                              const GivenUp& given_up = {});
// Reads `bytes` bytes, at least one, from `offset` on. kFailedPrecondition: the file is shorter.
StatusOr<std::vector<std::byte>> ReadRange(const std::string& address, uint64_t offset,
                                           uint64_t bytes, const GivenUp& given_up = {});

}  // namespace longhaul::http
