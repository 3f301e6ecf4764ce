// Stores probes (model.h) in a JSON file, together with the key in readable form. The key names
// what the times depend on: communicators, dtypes, devices and NCCL's environment variables.
//
//   <folder>/collectives-<sha256 of the key, 16 digits>.json
//   {"format": 1, "key": "...", "probes": [{"op": 0, "dtype": 3, "ratios": [1, 1.41],
//    "points": [{"bytes": 16384, "seconds": [1.1e-5, 2.3e-5]}]}]}
//
// `op` and `dtype` are the numbers of the enums in communicator.h. ParseCache accepts any text; if
// it is damaged or belongs to another key, kInvalidArgument says what is wrong.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "transport/collective/switcher/model.h"

namespace longhaul::collective::switcher {

inline constexpr int kCacheFormat = 1;

// Returns the file's path in `folder`.
std::string CachePath(const std::string& folder, std::string_view key);
std::string FormatCache(std::string_view key, std::span<const Probe> probes);
// `communicators`: the number of communicators that each probe must have times for.
StatusOr<std::vector<Probe>> ParseCache(std::string_view text, std::string_view key,
                                        size_t communicators);

}  // namespace longhaul::collective::switcher
