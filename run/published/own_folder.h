// The folder of a model whose ranks have channels of their own (group.p below 1, CAAT-Net). No
// model of transformers computes what it does, so the folder has no config.json, but longhaul.json:
//
//   {"format": "longhaul model", "version": 1, "group": {"tensor": 4, "p": 0.5},
//    "config": what config.json would say without `group`}
//
// Its tensors have the names, shapes and files of a published model. Rank r of `tensor` ranks uses
// its share of each (run/model/share.h), and the ranks sum only the first p x hidden channels.
//
// Pure, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul::published {

// group.tensor and group.p of the runs that compute a model; 1 and 1 of every published model.
struct RanksOfModel {
  uint32_t count = 1;
  double shared_channels = 1;
  bool have_own_channels() const { return shared_channels < 1; }
  friend bool operator==(const RanksOfModel&, const RanksOfModel&) = default;
};

inline constexpr std::string_view kOwnFile = "longhaul.json";

struct OwnFile {
  RanksOfModel ranks;
  std::string config_json;
};

// Returns nullopt if `text` does not name the format "longhaul model". kInvalidArgument: it does,
// but is no such file; kUnimplemented: of another version. `file_name`: the name in messages.
StatusOr<std::optional<OwnFile>> ParseOwnFile(std::string_view text, std::string_view file_name);
// `config_json` must be a JSON object.
std::string WriteOwnFile(const OwnFile& file);
// Returns the ranks in the text of either file, or in ""; errors: those of ParseOwnFile.
StatusOr<RanksOfModel> RanksIn(std::string_view text);
// Returns the config.json within the text of either file; "" for "".
std::string ConfigWithin(std::string_view text);

}  // namespace longhaul::published
