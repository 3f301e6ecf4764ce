// Owns the links of one cell (a stage of one replica) during one attempt at the run ("epoch"). A
// port is this cell's end of an edge. Edges go to the neighbour stages, to the other replicas of
// the stage, and to the stage with the other copy of a tied matrix. All links open at the same
// time, while the cell prepares other things.
//
// Threads: the agent's thread; Readdress on any thread; Readings and frames_received on any thread
// after Begin.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/cuda/device.h"
#include "base/status.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "transport/p2p/link.h"
#include "worker/epoch/resources.h"
#include "worker/epoch/worker_metrics.h"
#include "worker/pipeline/boundary_port.h"
#include "worker/pipeline/event_queue.h"
#include "worker/pipeline/replica_port.h"
#include "worker/pipeline/trace_log.h"
#include "worker/pipeline/wire_turns.h"

namespace longhaul::worker {

// The secrets that protect the links, one for each edge of the cell.
using EdgeSecrets = std::map<EdgeId, std::string>;
EdgeSecrets EdgeSecretsOf(const v1::Assign& assign);
// For each edge whose ends meet at a relay: the relays' addresses with tickets
// (transport/relay/ticket.h). Other edges are missing.
using EdgeWays = std::map<EdgeId, std::vector<std::string>>;
EdgeWays EdgeWaysOf(const v1::Assign& assign);

class EpochPorts {
 public:
  // `resources` and `assignment` must outlive this object. Call the methods only if `cell` is a
  // cell of the assignment.
  EpochPorts(const Resources& resources, const Assignment& assignment, const CellId& cell,
             EdgeSecrets secrets, EdgeWays ways, std::shared_ptr<EventQueue> events,
             std::shared_ptr<TraceLog> trace);

  // Checks that each edge of the cell has a secret; call it before Begin, which needs them.
  // kInvalidArgument: one has none.
  Status CheckSecrets() const;
  // Makes the ports and begins to open their links. `gpu`: the device that holds the stage's
  // tensors; nullopt: the host. `mixture`: the run's data sets; null: the run reads a token file.
  // Call it once. kFailedPrecondition: this worker lacks the transport of an edge. Other errors:
  // those of codecs and BoundaryMessages::Open.
  Status Begin(const RunSpec& spec, const std::optional<cuda::Device>& gpu,
               const data::Mixture* mixture);
  // Returns true if a boundary between stages of the cell's replica compresses activations. Codec
  // `none` compresses nothing.
  bool CompressesActivations() const;
  // Restores the tables of codecs that predict by tokens (codec/predict) from the checkpoint that
  // the attempt begins from. Leaves ports as they are that have no arrays in `arrays`. Call it
  // after Begin and before Await. kFailedPrecondition: the arrays of a port do not fit.
  Status RestoreTables(const std::vector<NamedArray>& arrays);
  // Blocks until all links are open, and until the two ends of each link have compared the state of
  // their codecs and cleared state that differs. Polls `cancelled`, which may
  // return true to end the wait with kCancelled. Errors: those of opening a link
  // (transport/p2p/link.h) and of BoundaryPort::AgreeOnMessages.
  Status Await(const std::function<bool()>& cancelled);
  // Replaces the addresses that this side dials for `edge`. May be called before Begin. Does
  // nothing if there is no such edge.
  void Readdress(EdgeId edge, std::vector<std::string> addresses);
  // Begins to close the open links, which still send what they hold, until `deadline` at most.
  // Stops opening the others. Does not wait for the links (EdgePort::Close).
  void Close(Deadline deadline);

  const std::vector<std::shared_ptr<BoundaryPort>>& ports() const { return ports_; }
  const std::vector<std::shared_ptr<ReplicaPort>>& replica_ports() const { return replica_ports_; }
  // Gets what arrives in training; null: the run has no audits.
  const std::shared_ptr<InputRecorder>& recorder() const { return recorder_; }
  // Number of frames received over all links.
  uint64_t frames_received() const;
  // Returns metrics of the open links.
  std::vector<LinkReading> Readings() const;
  // The ports with a codec whose state was cleared in Await, although the run continues from a
  // checkpoint. Valid as long as this object.
  const std::vector<const BoundaryPort*>& forgotten() const { return forgotten_; }
  // The edge of the link that opened and then broke during Await. nullopt: no link did that.
  std::optional<EdgeId> lost_edge() const { return lost_edge_; }

 private:
  // The result of opening one link. The callback shares it and may run after this object is gone.
  struct Answer {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<StatusOr<std::shared_ptr<transport::Link>>> link;
  };
  struct Opening {
    const Edge* edge;
    std::shared_ptr<EdgePort> port;
    std::shared_ptr<Answer> answer = std::make_shared<Answer>();
    bool open = false;
  };

  transport::LinkKey KeyOf(EdgeId edge) const {
    return {assignment_.run, assignment_.stamp(), edge};
  }
  // Returns the edge's transport; null if this worker does not have it.
  transport::Transport* TransportOf(const Edge& edge) const;
  StatusOr<std::shared_ptr<BoundaryPort>> MakePort(const RunSpec& spec,
                                                   const std::optional<cuda::Device>& gpu,
                                                   const Edge& edge);
  // Options that ports of all kinds share.
  BoundaryPortOptions OptionsFor(const Edge& edge, uint64_t tensor_bytes) const;
  void AddVerification(const RunSpec& spec, BoundaryPortOptions* options) const;
  StatusOr<std::shared_ptr<BoundaryPort>> MakeTiedPort(const RunSpec& spec, const Edge& edge);
  std::shared_ptr<ReplicaPort> MakeReplicaPort(const Edge& edge) const;
  // Makes the ports of one kind of edge.
  Status MakePorts(EdgeKind kind, const RunSpec& spec, const std::optional<cuda::Device>& gpu);
  StatusOr<std::shared_ptr<BoundaryMessages>> OpenMessages(const RunSpec& spec, const Edge& edge);
  const data::Mixture* mixture_ = nullptr;  // the argument of Begin
  void BeginToOpen(const RunSpec& spec, const Opening& opening, Deadline deadline);

  const Resources& resources_;
  const Assignment& assignment_;
  const CellId cell_;
  const EdgeSecrets secrets_;
  const EdgeWays ways_;
  const std::shared_ptr<EventQueue> events_;
  const std::shared_ptr<TraceLog> trace_;
  const std::shared_ptr<WireTurns> turns_ = std::make_shared<WireTurns>();
  std::shared_ptr<InputRecorder> recorder_;
  std::vector<Opening> openings_;
  std::vector<std::shared_ptr<BoundaryPort>> ports_;
  std::vector<std::shared_ptr<ReplicaPort>> replica_ports_;
  std::vector<const BoundaryPort*> forgotten_;
  std::optional<EdgeId> lost_edge_;

  std::mutex mutex_;
  std::map<EdgeId, std::vector<std::string>> moved_;  // newest addresses
};

}  // namespace longhaul::worker
