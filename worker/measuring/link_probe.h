// Carries out a ProbeLink command. It opens a separate link to a neighbour over the transport that
// the run will use, and measures idle round trips, then goodput in both directions at once. Then it
// drains the link and closes it.
//
// Both ends do the same, except that one dials. They send messages of one byte on the control lane:
//
//   ping, pong   each side measures some round trips
//   ready        the sender has measured its round trips. When both sides have sent "ready", both
//                send zeros on the bulk lane
//   enough       the sender has measured the rate at which zeros arrive. Both sides go on sending
//                zeros until both have sent "enough"
//   dry          all zeros of the sender have arrived. When both sides have sent "dry", the link is
//                closed
//
// If the command asks only for round trips, no zeros are sent: each side sends "enough" as soon as
// both have sent "ready", and the reported goodput is 0.
//
// Little data is in flight at any time, so that a slow link is not busy for seconds after the
// measurement.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "longhaul/v1/worker.pb.h"
#include "transport/p2p/link.h"

namespace longhaul::worker {

class LinkProbe {
 public:
  // `command` must have probe_link.
  explicit LinkProbe(const v1::WorkerCommand& command);
  ~LinkProbe();

  // Measures, and returns the answer for the coordinator, which contains the result or the error.
  // Blocks, at most for the command's time limit. Call it once.
  v1::WorkerMessage Run(const transport::TransportsByName& transports);
  // Makes Run return soon, also a later Run. Any thread.
  void Cancel();
  // Returns the argument of the constructor.
  const v1::WorkerCommand& command() const { return command_; }

 private:
  class Conversation;

  const v1::WorkerCommand command_;
  const std::shared_ptr<Conversation> conversation_;
};

}  // namespace longhaul::worker
