// Decides which coordinator a worker dials next, after what pause, and how long a coordinator may
// be silent. Pure: the session (session.h) and the simulation share it.
//
// A worker with one coordinator dials it again and again. One with several tries all of them before
// it pauses, and leaves a coordinator from which it hears nothing: another one may lead by now, and
// a coordinator that stopped may keep its connections open.
#pragma once

#include <cstddef>

#include "absl/time/time.h"

namespace longhaul::worker {

// A leader sends something at least every 2 s (v1::LeaderBeat).
inline constexpr absl::Duration kLeaderSilence = absl::Seconds(6);

// How a connection to a coordinator ended.
struct SessionEnding {
  bool welcomed = false;  // the coordinator accepted the hello
  bool serves = false;    // the coordinator still serves: dial the same one again
};

struct NextDial {
  bool another = false;  // the next coordinator of the list; false: the same one
  absl::Duration pause;  // before the dial; zero: at once
};

class DialOrder {
 public:
  // `coordinators`: how many the worker knows, at least 1. `silence`: how long one of several may
  // be silent.
  explicit DialOrder(size_t coordinators, absl::Duration silence = kLeaderSilence)
      : coordinators_(coordinators),
        silence_(coordinators == 1 ? absl::InfiniteDuration() : silence) {}

  // Call it at the end of each connection, also of one that was never made.
  NextDial After(const SessionEnding& ending);
  // How long the coordinator may be silent before the worker ends the connection.
  absl::Duration SilenceLimit() const { return silence_; }

 private:
  size_t coordinators_;
  absl::Duration silence_;
  absl::Duration back_off_ = absl::Milliseconds(200);
  // Since the last pause.
  size_t tried_ = 0;
  bool welcomed_ = false;
};

}  // namespace longhaul::worker
