// The links of one cell during one attempt ("epoch"): a port for each edge of activations, for the
// tied edge, and for edges to the stage's data-parallel replicas. All links are opened at once,
// while the cell prepares other things.
//
// Threads: the agent's; Readdress on any thread.
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

// The secret of each edge of the cell.
using EdgeSecrets = std::map<EdgeId, std::string>;
EdgeSecrets EdgeSecretsOf(const v1::Assign& assign);
// Addresses of the relay, for edges whose ends meet at a relay (transport/relay/ticket.h).
using EdgeWays = std::map<EdgeId, std::vector<std::string>>;
EdgeWays EdgeWaysOf(const v1::Assign& assign);

class EpochPorts {
 public:
  // `resources` and `assignment` outlive this object. `cell` is a cell of the assignment.
  EpochPorts(const Resources& resources, const Assignment& assignment, const CellId& cell,
             EdgeSecrets secrets, EdgeWays ways, std::shared_ptr<EventQueue> events,
             std::shared_ptr<TraceLog> trace);

  // kInvalidArgument: an edge of the cell has no secret.
  Status CheckSecrets() const;
  // Makes the ports and begins to open their links. `gpu`: the device of the stage's tensors.
  // `mixture`: the run's data sets; null: a token file.
  Status Begin(const RunSpec& spec, const std::optional<cuda::Device>& gpu,
               const data::Mixture* mixture);
  // Whether a boundary of the cell's replica compresses activations.
  bool CompressesActivations() const;
  // Restores token tables from the checkpoint that the attempt begins from. Call it before Await.
  Status RestoreTables(const std::vector<NamedArray>& arrays);
  // Waits until all links are open and both ends of each have agreed on the state of their codecs.
  Status Await(const std::function<bool()>& cancelled);
  // Replaces the addresses of a peer that this side dials. May be called before Begin.
  void Readdress(EdgeId edge, std::vector<std::string> addresses);
  // Flushes and ends open links, and gives up the others.
  void Close(Deadline deadline);

  const std::vector<std::shared_ptr<BoundaryPort>>& ports() const { return ports_; }
  const std::vector<std::shared_ptr<ReplicaPort>>& replica_ports() const { return replica_ports_; }
  uint64_t frames_received() const;
  // Metrics of the open links. Any thread, after Begin.
  std::vector<LinkReading> Readings() const;
  // Ports whose codecs start empty although the run continues from a checkpoint.
  const std::vector<const BoundaryPort*>& forgotten() const { return forgotten_; }
  // The edge whose other end is gone, after Await returned kUnavailable. nullopt: the other end
  // never connected.
  std::optional<EdgeId> lost_edge() const { return lost_edge_; }

 private:
  // Shared with the callback, which may run after this object is gone.
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

  transport::LinkKey KeyOf(EdgeId edge) const { return {assignment_.run, assignment_.epoch, edge}; }
  // Null if this worker does not have the transport.
  transport::Transport* TransportOf(const Edge& edge) const;
  StatusOr<std::shared_ptr<BoundaryPort>> MakePort(const RunSpec& spec,
                                                   const std::optional<cuda::Device>& gpu,
                                                   const Edge& edge);
  // Options that ports of all kinds share.
  BoundaryPortOptions OptionsFor(const Edge& edge, uint64_t tensor_bytes) const;
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
  std::vector<Opening> openings_;
  std::vector<std::shared_ptr<BoundaryPort>> ports_;
  std::vector<std::shared_ptr<ReplicaPort>> replica_ports_;
  std::vector<const BoundaryPort*> forgotten_;
  std::optional<EdgeId> lost_edge_;

  std::mutex mutex_;
  std::map<EdgeId, std::vector<std::string>> moved_;  // newest addresses
};

}  // namespace longhaul::worker
