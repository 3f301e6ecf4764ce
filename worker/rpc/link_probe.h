// One ProbeLink carried out: opens a link of its own to a neighbour through the transport that the
// run will use, measures round trips while it is idle and then goodput in both directions at once,
// lets it run dry and closes it.
//
// Both ends do the same, but that one dials. Words of one byte go over the control lane:
//
//   ping, pong   some round trips, each side's own
//   ready        this side's are done; when both are, both send frames of zeros on the bulk lane
//   enough       this side knows what arrives; both go on sending until both do
//   dry          what this side sent has been taken; when both are, the link is closed
//
// Where round trips alone are asked for, both have enough as soon as both are ready.
//
// What is under way is kept small, or a slow link would be busy with it for seconds afterwards.
#ifndef LONGHAUL_WORKER_RPC_LINK_PROBE_H_
#define LONGHAUL_WORKER_RPC_LINK_PROBE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "longhaul/v1/worker.pb.h"
#include "transport/p2p/link.h"

namespace longhaul::worker {

using TransportsByName = std::map<std::string, transport::Transport*, std::less<>>;

class LinkProbe {
 public:
  explicit LinkProbe(const v1::WorkerCommand& command);
  ~LinkProbe();

  // Takes up to the command's limit; the answer says what went wrong. Once.
  v1::WorkerMessage Run(const TransportsByName& transports);
  // From any thread: Run returns soon.
  void Cancel();
  // Whether the command speaks of the same run and epoch.
  bool BelongsTo(const v1::WorkerCommand& command) const;
  // Whether it is the same ProbeLink, which may come again.
  bool IsOf(const v1::WorkerCommand& command) const;

 private:
  class Conversation;

  const v1::WorkerCommand command_;
  const std::shared_ptr<Conversation> conversation_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_LINK_PROBE_H_
