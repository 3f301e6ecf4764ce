// The objects and settings of a worker's daemon that all its runs share. The pointers are not
// owned.
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
  // By name of the transport (run/kinds/transports.h).
  transport::TransportsByName transports;
  // The devices that the worker offers. A cell (a stage of one replica) names them by index. Layers
  // are measured on the first device, and for a group on as many devices as it has ranks.
  std::vector<WorkerDevice> devices;
  CodecThread* codec_thread = nullptr;
  ShardStore* shards = nullptr;
  BlobFetcher* blobs = nullptr;
  BlobFetcher* shard_copies = nullptr;  // for shards of other workers that a stage resumes from
  ShardCourier* courier = nullptr;
  TrafficWatch* traffic = nullptr;
  ShardTransfers* transfers = nullptr;
  std::optional<BoundaryDumpOptions> dump;
  std::string messages_root;                    // folder of boundary_messages.h
  std::function<void(v1::WorkerMessage)> send;  // thread-safe
  // A piece of work that takes longer counts as hung (pipeline/watchdog.h).
  absl::Duration progress_timeout = absl::Seconds(60);
  // Replaces this process by a new one, which learns the cause. Thread-safe. Returns only if the
  // daemon is already ending. Null: the process goes on.
  std::function<void(const RestartCause&)> restart;
  // How long a stage stays in memory after its attempt, for the next one.
  absl::Duration resident_limit = absl::Minutes(10);
  MakeStage make_stage = Stage::Create;
};

}  // namespace longhaul::worker
