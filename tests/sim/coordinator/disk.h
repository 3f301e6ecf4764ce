// Simulates the disk of a worker's machine: its checkpoint files (shards), and the faults that
// changed them. A killed process loses nothing that it wrote. A machine that loses power loses what
// was not synced. Not thread-safe.
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
  // Writes or replaces a file. `sha256` stands for its contents.
  void Write(const ShardName& name, const std::string& sha256);
  // Makes the file's present contents survive a loss of power. Does nothing if there is no file.
  void Sync(const ShardName& name);
  void Erase(const std::string& run, uint64_t step);
  // Erases the run's files of steps before the newest step in `kept`, except steps in `kept`. Does
  // nothing if `kept` is empty.
  void EraseOthers(const std::string& run, const std::set<uint64_t>& kept);
  // The hash of the file's present content; nullopt: there is no such file.
  std::optional<std::string> Find(const ShardName& name) const;

  // Every file gets the contents of its last Sync; a file that was never synced is erased.
  void LosePower();
  // The machine is lost with its disk: erases all files.
  void LoseAll();
  // Damages the contents of one file and returns its name; nullopt: there is no file.
  std::optional<ShardName> Rot(Random& random);
  // True if Rot changed the file since it was last written, or if the disk was lost (LoseAll).
  bool WasHarmed(const ShardName& name) const { return gone_ || harmed_.contains(name); }
  // True if WasHarmed is true for any file of the run.
  bool HasHarmed(const std::string& run) const;

 private:
  struct File {
    std::string sha256;
    std::optional<std::string> synced;  // contents after a loss of power; nullopt: no file
  };
  std::map<ShardName, File> files_;
  std::set<ShardName> harmed_;
  bool gone_ = false;
};

}  // namespace longhaul::coordinator::sim
