// How the ranks of a group compress the tensors that they sum or gather: the values of the run
// file's keys group.forward and group.backward.
//
//   none, zip, auto
//   taco                            codes of 8 bits with the defaults of codec/taco/format.h
//   taco:format=int8,block=128      the same with options; keys that are left out have defaults
//
// Thread-safe (plain data and pure functions).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/words.h"
#include "codec/taco/format.h"

namespace longhaul {

enum class GroupCollective : uint8_t {
  kNone,
  kTaco,  // 8-bit codes
  kZip,   // without loss, only bf16
  kAuto,  // kNone or kZip, whichever a worker measures to be faster
};
constexpr std::string_view ToString(GroupCollective what) {
  return WordOf(what, {"none", "taco", "zip", "auto"});
}

// A choice with its options.
struct GroupCompression {
  // Implicit, because most choices have no options.
  // NOLINTNEXTLINE(google-explicit-constructor)
  GroupCompression(GroupCollective kind = GroupCollective::kNone) : what(kind) {}
  explicit GroupCompression(const codec::taco::Params& params)
      : what(GroupCollective::kTaco), taco(params) {}

  GroupCollective what;
  codec::taco::Params taco;  // the defaults, unless `what` is kTaco
  friend bool operator==(const GroupCompression&, const GroupCompression&) = default;
};

// Reads a value of the run file. Appends one sentence to *problems for each thing that is wrong:
// what was expected, and what came.
GroupCompression ReadGroupCompression(std::string_view text, std::vector<std::string>* problems);
// The shortest text that reads as `compression`, or all options if one is not the default.
std::string ToString(const GroupCompression& compression);

}  // namespace longhaul
