// The objects that exist once in a worker's daemon and that all its runs share.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "longhaul/v1/worker.pb.h"
#include "transport/p2p/link.h"
#include "worker/checkpoint/shard_store.h"
#include "worker/epoch/blob_fetcher.h"
#include "worker/epoch/restart.h"
#include "worker/measuring/device.h"
#include "worker/pipeline/boundary_dump.h"
#include "worker/pipeline/codec_thread.h"
#include "worker/pipeline/resident_stage.h"
#include "worker/pipeline/traffic_watch.h"
#include "worker/shards/shard_courier.h"
#include "worker/shards/shard_transfers.h"

namespace longhaul::worker {

struct Resources {
  // Keys are names (run/kinds/transports.h).
  transport::TransportsByName transports;
  // The devices that the worker offers; a cell names them by index. Layers are measured on the
  // first device, and on as many as a group takes.
  std::vector<WorkerDevice> devices;
  CodecThread* codec_thread = nullptr;
  ShardStore* shards = nullptr;
  BlobFetcher* blobs = nullptr;
  BlobFetcher* shard_copies = nullptr;  // shards from other workers, on their way into a stage
  ShardCourier* courier = nullptr;
  TrafficWatch* traffic = nullptr;
  ShardTransfers* transfers = nullptr;
  std::optional<BoundaryDumpOptions> dump;
  std::string messages_root;                    // folder of codecs' memory (boundary_messages.h)
  std::function<void(v1::WorkerMessage)> send;  // thread-safe
  // Longest time for one piece of work (pipeline/watchdog.h).
  absl::Duration progress_timeout = absl::Seconds(60);
  // Tells the coordinator about the fault, and replaces this process; null: the process goes on.
  // Thread-safe. Returns only if the daemon is ending already.
  std::function<void(const RestartCause&)> restart;
  // How long a stage stays in memory after its attempt, for the next one.
  absl::Duration resident_limit = absl::Minutes(10);
  MakeStage make_stage = Stage::Create;
};

}  // namespace longhaul::worker
