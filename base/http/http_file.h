// Reads files from web servers by ranges, over http and https. Follows redirects, and checks
// certificates against the system's authorities.
//
// Thread-safe. Calls block, and return soon after `given_up` is true. Errors:
//   kInvalidArgument     not an address of a web server
//   kNotFound            the server has no such file
//   kPermissionDenied    it does not give it to us
//   kUnavailable         no connection, an answer that broke off, a server in trouble: may pass
//   kFailedPrecondition  it answers in a way that cannot be used: no ranges, no size
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul::http {

// Whether a text begins with "http://" or "https://".
bool IsAddress(std::string_view text);
// The address of `file`, a path relative to the folder `address`.
std::string AddressOf(std::string_view address, std::string_view file);

using GivenUp = std::function<bool()>;

// Size of the file in bytes.
StatusOr<uint64_t> SizeOf(const std::string& address, const GivenUp& given_up = {});
// Reads the whole file. kFailedPrecondition: it is longer than `limit` bytes.
StatusOr<std::string> ReadAll(const std::string& address, uint64_t limit,
                              const GivenUp& given_up = {});
// Reads `bytes` (at least one) from `offset` on. kFailedPrecondition: the file is shorter.
StatusOr<std::vector<std::byte>> ReadRange(const std::string& address, uint64_t offset,
                                           uint64_t bytes, const GivenUp& given_up = {});

}  // namespace longhaul::http
