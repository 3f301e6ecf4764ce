// What longhaul-bench-collective is asked to measure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "transport/collective/communicator.h"
#include "transport/collective/taco/factory.h"
#include "transport/collective/zip/factory.h"

namespace longhaul::collective::bench {

// "native", "exact", "mapped", "zip:exchange=bounded,piece=4Mi", "taco:format=int8,over=mapped",
// "switcher:with=zip+taco".
struct Variant {
  enum class Kind : uint8_t { kNative, kExact, kZip, kTaco, kSwitcher };
  std::string text;  // a second one of the same text has "#2" after it
  Kind kind = Kind::kNative;
  zip::Options zip;
  taco::Options taco;
  bool mapped = false;        // through host memory that GPUs map, instead of the native one
  std::vector<Variant> with;  // what a switcher has beside the native one
  double margin = 0.05;       // of a switcher
};

// An all-to-all in which tokens choose experts by Zipf's law; exponent 0: not asked for.
struct Routing {
  double exponent = 0;
  uint32_t experts = 64;
  uint64_t tokens = 16384;  // of each rank
  uint64_t hidden = 2048;   // elements of a token
};

struct Options {
  bool cuda = false;
  uint32_t ranks = 2;
  bool processes = false;
  std::vector<Op> operations;
  uint64_t min_bytes = 4 << 10, max_bytes = 1 << 30;
  uint32_t factor = 4;
  Dtype dtype = Dtype::kBf16;
  bool in_place = false;
  std::string data = "normal";  // or student_t, zeros, a file
  uint32_t iterations = 20, warmup = 5, rounds = 11;
  absl::Duration batch_limit = absl::Milliseconds(500);
  std::vector<Variant> variants;
  Routing routing;
  bool graph = false;
  uint32_t replays = 1000;
  std::string nccl;   // a file; empty: searched for
  std::string cache;  // folder of the switchers' probes; empty: none are kept
  std::string csv, json;
};

// Lists with commas between. A part "key=value" belongs to the variant before it.
StatusOr<std::vector<Variant>> ParseVariants(std::string_view text);
// all_reduce, reduce_scatter, all_gather, all_to_all, all
StatusOr<std::vector<Op>> ParseOperations(std::string_view text);
StatusOr<Dtype> ParseDtype(std::string_view text);
// As the flags have them.
std::string_view NameOf(Op op);
std::string_view NameOf(Dtype dtype);

// What cannot be measured together, before anything starts; takes all-to-all out of an in-place
// `all`.
Status Check(Options* options, bool all_operations);

}  // namespace longhaul::collective::bench
