// Workers as candidates for stages.
#include <algorithm>

#include "coordinator/state/workers/worker_links.h"
#include "planner/planner.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {

namespace {

// Adds the devices of the first one's kind, which is timed. Their memory is that of the smallest
// among those that a group takes.
void AddDevices(const RunSpec& spec, const v1::Hello& hello, CandidateWorker* worker) {
  for (int i = 0; i < hello.devices_size(); ++i) {
    const v1::Device& device = hello.devices(i);
    if (device.kind() != hello.devices(0).kind()) continue;
    if (worker->devices.size() < spec.group.tensor && !spec.replay) {
      worker->memory_bytes = std::min(worker->memory_bytes, device.memory_bytes());
      if (!device.uuid().empty()) worker->shared_devices.push_back(device.uuid());
    }
    worker->devices.push_back(static_cast<uint32_t>(i));
    worker->device_memory_bytes.push_back(device.memory_bytes());
    if (!worker->on_gpu) worker->cores += device.cores();
  }
}

}  // namespace

CandidateWorker WorkerLinks::CandidateOf(const RunSpec& spec, const Worker& worker) const {
  CandidateWorker one;
  one.id = worker.id;
  one.incarnation = worker.incarnation;
  one.name = worker.hello.name();
  if (spec.replay) {
    // A replay takes next to none of its worker's memory; it is planned for another machine.
    one.memory_bytes = spec.replay->memory_bytes;
  } else if (!worker.hello.devices().empty()) {
    // A worker computes on the first device that it names.
    const v1::Device& device = worker.hello.devices(0);
    one.memory_bytes = device.memory_bytes();
    one.on_gpu = device.kind() == "cuda";
    one.device = device.name();
    if (one.on_gpu) one.host_memory_bytes = device.host_memory_bytes();
  }
  one.endpoints = FromProto(worker.hello.endpoints());
  AddDevices(spec, worker.hello, &one);
  AddReach(&one);
  one.relays = RelaysNow();
  return one;
}

void WorkerLinks::SettleDtype(const std::vector<Worker*>& workers, RunSpec* spec) const {
  if (spec->train.dtype != ComputeDtype::kAuto) return;
  const bool on_gpus = std::ranges::all_of(
      workers, [&](const Worker* worker) { return CandidateOf(*spec, *worker).on_gpu; });
  spec->train.dtype = on_gpus ? ComputeDtype::kBf16 : ComputeDtype::kFp32;
}

bool WorkerLinks::HasDevicesFor(const RunSpec& spec, const Worker& worker) const {
  return spec.group.tensor == 1 || CheckDevices(spec, {CandidateOf(spec, worker)}).ok();
}

StatusOr<LinkEnds> WorkerLinks::PathBetween(const Run& run, const Worker& source,
                                            const Worker& holder, EdgeKind kind) const {
  const RunSpec& spec = run.record.spec;
  return EndsOf(spec, CandidateOf(spec, source), CandidateOf(spec, holder), kind);
}

}  // namespace longhaul::coordinator
