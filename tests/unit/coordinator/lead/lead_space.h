// All that two seats and a witness can come to, with messages that are lost, repeated and delivered
// in any order, and with crashes: a breadth-first search over the real classes.
#pragma once

#include <cstdint>
#include <string>

namespace longhaul::coordinator {

// How often each thing may happen on one path.
struct SpaceLimits {
  int elections = 2;  // requests to be elected
  int votes = 0;      // those of them that go to the other seat
  int changes = 1;    // besides those that begin a term
  int crashes = 1;
  int shrinks = 1;
  int grows = 1;
  int reminders = 0;
  int restores = 0;  // a seat's store is replaced by the one at the start
  uint64_t most_states = 100'000'000;
};
// Where it begins.
enum class SpaceStart : uint8_t {
  kPair,   // A leads, B is in sync, and nothing is under way
  kAlone,  // A leads, and alone is in sync by its own record and the witness's
  kCold,   // nobody leads; both are in sync
};

struct SpaceResult {
  uint64_t states = 0;
  uint64_t commits = 0;  // distinct (state, commit) that were seen
  uint64_t leaders = 0;  // times that a seat began to lead
  int depth = 0;
  bool complete = false;  // the space was searched whole
  std::string violation;  // empty: none; else what is wrong, and the path to it
};

SpaceResult SearchSpace(SpaceStart start, const SpaceLimits& limits);

}  // namespace longhaul::coordinator
