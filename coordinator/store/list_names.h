// Reads which blobs and files a list names. A list is a blob of JSON: the chunks of a run's data
// sets (run/data/data_set.h) or the tensors of its published model (run/published/weights.h). Reads
// it as a stream, so that a hostile list takes no more memory than its names. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul::coordinator {

// Maximum size of a list's JSON text: names of 240,000 chunks. A list of weights has its
// tokenizer's files beside that, up to kMostListFileBytes in base64.
inline constexpr uint64_t kMostListBytes = uint64_t{16} << 20;
inline constexpr uint64_t kMostListFileBytes = uint64_t{112} << 20;
// Maximum number of values (numbers, texts, arrays, objects) in a list: what reads it later builds
// a tree of them.
inline constexpr size_t kMostListValues = 1'000'000;

struct ListNames {
  static constexpr size_t kNameBytes = 32;
  // SHA-256 of blobs, kNameBytes raw bytes each, one after the other in the order of the list; may
  // repeat.
  std::string blobs;
  // Where the files are. Of data sets: the folder of each, in order. Of weights: the model's
  // address, or nothing if that is a folder.
  std::vector<std::string> folders;
  // Addresses (remote::ToString) of files that are no blobs of the coordinator.
  std::set<std::string> objects;

  size_t size() const { return blobs.size() / kNameBytes; }
  std::string_view name(size_t i) const {
    return std::string_view(blobs).substr(i * kNameBytes, kNameBytes);
  }
};

// kInvalidArgument: not a list of either kind, or above one of the limits. Reads `json` to its end,
// or to the first fault.
StatusOr<ListNames> ReadListNames(std::istream& json);

}  // namespace longhaul::coordinator
