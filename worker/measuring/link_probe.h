// Carries out a ProbeLink command: opens a separate link to a neighbour over the transport that the
// run will use, measures idle round trips and then goodput in both directions at once, drains the
// link and closes it.
//
// Both ends do the same, except that one dials. They send messages of one byte on the control lane:
//
//   ping, pong   some round trips, each side's own
//   ready        this side's round trips are done; when both are, both send zeros on the bulk lane
//   enough       this side has measured its rate; both keep sending until both have enough
//   dry          all data of this side has arrived; when both are dry, the link is closed
//
// If only round trips are asked for, a side has enough as soon as both are ready.
//
// Little data is kept in flight; otherwise a slow link would be busy for seconds afterwards.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "longhaul/v1/worker.pb.h"
#include "transport/p2p/link.h"

namespace longhaul::worker {

class LinkProbe {
 public:
  explicit LinkProbe(const v1::WorkerCommand& command);
  ~LinkProbe();

  // Takes up to the command's time limit. The answer reports errors. Call it once.
  v1::WorkerMessage Run(const transport::TransportsByName& transports);
  // Makes Run return soon. Any thread.
  void Cancel();
  // Whether the command is about the same run and epoch.
  bool BelongsTo(const v1::WorkerCommand& command) const;
  // Whether the command is this ProbeLink, which may be sent again.
  bool IsOf(const v1::WorkerCommand& command) const;

 private:
  class Conversation;

  const v1::WorkerCommand command_;
  const std::shared_ptr<Conversation> conversation_;
};

}  // namespace longhaul::worker
