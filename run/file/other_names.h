// Names that other programs give to keys of a run file, for messages about unknown keys. Pure.
#pragma once

#include <string>
#include <string_view>

namespace longhaul::config {

// Returns what the key of another program is called here, with its value as it would be written:
// "train.optimizer.lr: 2e-5", or a sentence where there is no such key. "": no other program's key
// is known by this name. `key` may have dashes, capitals or underscores. `value`: as in the file;
// "" if it is no scalar.
std::string OtherName(std::string_view key, std::string_view value);

}  // namespace longhaul::config
