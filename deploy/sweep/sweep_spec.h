// The sweep file: the links, codecs and schedules with which one run file (the base run) is tried.
// Each combination is a point. docs/guide/sweeps.md has an example with every key.
//
// Thread-safe: plain data and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "run/file/run_spec.h"

namespace longhaul {

struct SweepCodecs {
  std::string name;  // "paper"; the name in the columns of the results
  CodecPair codecs;
  friend bool operator==(const SweepCodecs&, const SweepCodecs&) = default;
};

// A named set of changes to the base run: "mbs2" with train.microbatch_size=2. Variants are one
// more dimension of the sweep: each point has one variant.
struct SweepVariant {
  std::string name;
  std::vector<std::string> set;  // "train.microbatches=16", in the form of --set
  friend bool operator==(const SweepVariant&, const SweepVariant&) = default;
};

struct SweepSpec {
  std::string title;  // of the report; "": the base run's name
  std::string base;   // a run file, relative to the sweep file's folder; "": base_text has the run
  std::string base_text;  // the run, with the lines that it has in the sweep file; "": see base
  std::vector<std::string> set;  // changes to the base run, for every point
  // False: the file has no rates. Workers then are plain processes of this machine.
  bool shaped = true;
  std::vector<uint64_t> rates;          // bits a second of every link; 0 = not shaped
  std::vector<absl::Duration> delays;   // one way; default: only 0
  absl::Duration jitter;                // of every link that has a delay; at most each delay
  double loss = 0;                      // share of packets, of every link; 0 to below 1
  std::vector<SweepCodecs> links;       // required; in the order of the file
  std::vector<ScheduleKind> schedules;  // default: the base run's
  std::vector<SweepVariant> variants;   // default: none
  uint32_t repeats = 1;                 // how many times each combination runs
  uint32_t warm_up = 2;             // number of first steps of a run that its step time leaves out
  std::optional<uint32_t> workers;  // default: as many as the largest run needs
  friend bool operator==(const SweepSpec&, const SweepSpec&) = default;
};

// Parses `yaml`, the text of the file that messages call `file_name`. Does not open the base run.
// kInvalidArgument has *all* errors of the file, one per line as "file:line:column: what was
// expected, what came, what to do".
StatusOr<SweepSpec> ParseSweepSpec(std::string_view yaml, std::string_view file_name);

// Return texts as in a sweep file: "100mbit", "unlimited" for 0; "25ms", "0ms". RateText is exact.
// DelayText drops parts below 1 us.
std::string RateText(uint64_t bits_per_second);
std::string DelayText(absl::Duration delay);

}  // namespace longhaul
