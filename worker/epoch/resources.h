// The objects and settings of a worker's daemon that all its runs share. Each pointer is not null,
// is not owned, and must outlive the Agent (agent/agent.h) that gets these resources.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/root_folders.h"
#include "longhaul/v1/worker.pb.h"
#include "transport/p2p/link.h"
#include "worker/checkpoint/shard_store.h"
#include "worker/epoch/blob_fetcher.h"
#include "worker/epoch/remote_objects.h"
#include "worker/epoch/restart.h"
#include "worker/measuring/device.h"
#include "worker/pipeline/boundary_dump.h"
#include "worker/pipeline/codec_thread.h"
#include "worker/pipeline/message_keeper.h"
#include "worker/pipeline/plausibility.h"
#include "worker/pipeline/rehearsal.h"
#include "worker/pipeline/resident_stage.h"
#include "worker/pipeline/step_digests.h"
#include "worker/pipeline/traffic_watch.h"
#include "worker/shards/folder_courier.h"
#include "worker/shards/shard_courier.h"
#include "worker/shards/shard_transfers.h"

namespace longhaul::codec::python {
class Host;  // host.h
}

namespace longhaul::worker {

struct Resources {
  // By name of the transport (run/kinds/transports.h).
  transport::TransportsByName transports;
  // The devices that the worker offers. A cell (a stage of one replica) names them by index. Layer
  // times are measured on the first device, and for a group of ranks on one device for each rank.
  std::vector<WorkerDevice> devices;
  CodecThread* codec_thread = nullptr;
  ShardStore* shards = nullptr;  // this worker's checkpoint files
  BlobFetcher* blobs = nullptr;  // fetches texts and lists of data sets
  // Fetches chunks, tensors and lists of weights, which are deleted when they have been read. Apart
  // from `blobs`, whose files stay: a run must not get what was fetched for somebody else's run by
  // naming its hash as a chunk.
  BlobFetcher* pieces = nullptr;
  BlobFetcher* shard_copies = nullptr;  // fetches shards of other workers, for a stage that resumes
  ShardCourier* courier = nullptr;      // checks shards, and uploads them to the coordinator
  TrafficWatch* traffic = nullptr;
  // Folders of this machine whose files a run may name. Null: none.
  const RootFolders* roots = nullptr;
  // Reads models and data sets at addresses. Null: this worker reads none.
  const RemoteObjects* objects = nullptr;
  // Runs the codecs that are Python classes. Null: this worker permits none.
  const codec::python::Host* python_codecs = nullptr;
  ShardTransfers* transfers = nullptr;  // copies shards from worker to worker
  // Copies shards to and from object stores. Null: this worker leaves out such commands.
  FolderCourier* folders = nullptr;
  std::optional<BoundaryDumpOptions> dump;  // nullopt: boundary tensors are not written to files
  std::string messages_root;                // folder of boundary_messages.h
  // The newest messages of the present run (message_keeper.h), and the folder in which those that
  // are evidence get written. Null: none are kept.
  std::shared_ptr<MessageKeeper> kept_messages;
  std::string evidence_root;
  std::shared_ptr<SenderBook> senders;          // judges what arrives; null: nobody does
  SignDigests sign;                             // null: without TLS
  std::shared_ptr<Rehearsal> rehearsal;         // null: nothing is rehearsed
  std::function<void(v1::WorkerMessage)> send;  // to the coordinator; thread-safe; never blocks
  // A piece of work that takes longer than this counts as hung; the limit is longer where steps are
  // slow (pipeline/watchdog.h).
  absl::Duration progress_timeout = absl::Seconds(60);
  // Replaces this process by a new one, which learns the cause (restart.h). Thread-safe. Returns
  // only if the daemon is already ending. Null: the worker never restarts itself.
  std::function<void(const RestartCause&)> restart;
  // How long a stage stays in memory after its attempt, so that the next attempt can use it.
  absl::Duration resident_limit = absl::Minutes(10);
  MakeStage make_stage = Stage::Create;
};

}  // namespace longhaul::worker
