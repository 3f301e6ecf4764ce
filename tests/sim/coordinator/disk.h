// The disk of a worker's machine: the shards on it, and what faults did to them. A kill -9 leaves
// what was written; a machine that loses its power loses what was not synced.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "tests/sim/coordinator/random.h"

namespace longhaul::coordinator::sim {

struct ShardName {
  std::string run;
  uint64_t step = 0;
  uint32_t stage = 0;
  uint32_t replica = 0;
  auto operator<=>(const ShardName&) const = default;
};

class Disk {
 public:
  // Replaces the file of that name.
  void Write(const ShardName& name, const std::string& sha256);
  // From now on it survives a loss of power.
  void Sync(const ShardName& name);
  void Erase(const std::string& run, uint64_t step);
  // All of the run before the newest of `kept` but those of `kept`.
  void EraseOthers(const std::string& run, const std::set<uint64_t>& kept);
  // The hash of the file's present content; nullopt: there is no such file.
  std::optional<std::string> Find(const ShardName& name) const;

  void LosePower();
  // The machine is gone, and the disk with it.
  void LoseAll();
  // The content of some file changes. Nullopt: there is none.
  std::optional<ShardName> Rot(Random& random);
  // Whether a fault, and nobody else, is why the file is not what was written and synced.
  bool WasHarmed(const ShardName& name) const { return gone_ || harmed_.contains(name); }
  // Whether that is so of any file of the run.
  bool HasHarmed(const std::string& run) const;

 private:
  struct File {
    std::string sha256;
    std::optional<std::string> synced;  // what a loss of power leaves of it
  };
  std::map<ShardName, File> files_;
  std::set<ShardName> harmed_;
  bool gone_ = false;
};

}  // namespace longhaul::coordinator::sim
