// longhaul-codec bench --device cuda: times of a codec's kernels by events of the device, beside a
// copy's in the same run.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/graph.h"
#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "codec/aqsgd/arithmetic.h"
#include "codec/cuda/cuda_codec.h"
#include "codec/cuda/device_tables.h"
#include "codec/predict/tables.h"
#include "codec/tool/bench_data.h"
#include "codec/tool/commands.h"

namespace longhaul::codec {
namespace {

using cuda::CudaCodec;
using cuda::DeviceTables;
using ::longhaul::cuda::DeviceBuffer;
using ::longhaul::cuda::Event;
using ::longhaul::cuda::Graph;
using ::longhaul::cuda::Stream;

// Tensors that are gone through in turn hold at least this together: more than caches do.
constexpr size_t kTurnBytes = size_t{1} << 28;

// A tensor, its encoded form and what both need. A codec with state remembers every sample.
struct Set {
  DeviceBuffer in, blob, out, workspace, fault, entries, records;

  cuda::DeviceMessages messages() {
    if (records.size() <= 1) return {};
    return {.entries = {entries.data_dev(), entries.size()},
            .records = {records.data_dev(), records.size()}};
  }
};

StatusOr<Set> MakeSet(const longhaul::cuda::Device& device, const CudaCodec& codec,
                      const NpyArray& array, Stream* stream) {
  const size_t bytes = array.data.size();
  const auto make = [&](size_t size) { return DeviceBuffer::Create(device, size); };
  LH_ASSIGN_OR_RETURN(DeviceBuffer in, make(bytes));
  LH_ASSIGN_OR_RETURN(DeviceBuffer blob, make(codec.MaxEncodedBytes(array.shape)));
  LH_ASSIGN_OR_RETURN(DeviceBuffer out, make(bytes));
  LH_ASSIGN_OR_RETURN(DeviceBuffer workspace,
                      make(std::max<size_t>(codec.WorkspaceBytes(array.shape), 64)));
  LH_ASSIGN_OR_RETURN(DeviceBuffer fault, make(sizeof(uint32_t)));
  const size_t record_bytes = codec.cpu().MessageBytes(array.shape);
  std::vector<aqsgd::Entry> of_samples(array.shape.samples);
  for (uint64_t k = 0; k < of_samples.size(); ++k) of_samples[k] = {.id = k, .check = 1};
  const std::vector<std::byte> zeros(record_bytes);
  LH_ASSIGN_OR_RETURN(DeviceBuffer entries, make(of_samples.size() * sizeof(aqsgd::Entry)));
  LH_ASSIGN_OR_RETURN(DeviceBuffer records,
                      make(std::max<size_t>(of_samples.size() * record_bytes, 1)));
  LH_RETURN_IF_ERROR(stream->Copy(entries.data_dev(), of_samples.data(), entries.size()));
  for (size_t k = 0; k < of_samples.size(); ++k) {
    LH_RETURN_IF_ERROR(stream->Copy(static_cast<std::byte*>(records.data_dev()) + k * record_bytes,
                                    zeros.data(), record_bytes));
  }
  const uint32_t none = 0;
  LH_RETURN_IF_ERROR(stream->Copy(in.data_dev(), array.data.span().data(), bytes));
  LH_RETURN_IF_ERROR(stream->Copy(fault.data_dev(), &none, sizeof(none)));
  return Set{std::move(in),    std::move(blob),    std::move(out),    std::move(workspace),
             std::move(fault), std::move(entries), std::move(records)};
}

// A decoder that refuses its blob does less.
Status ExpectNoFault(const Set& set, Stream* stream) {
  uint32_t fault = 0;
  LH_RETURN_IF_ERROR(stream->Copy(&fault, set.fault.data_dev(), sizeof(fault)));
  LH_ASSIGN_OR_RETURN(Event copied, Event::Create(stream->device()));
  LH_RETURN_IF_ERROR(copied.Record(*stream));
  LH_RETURN_IF_ERROR(copied.Await(Deadline::After(absl::Minutes(1))));
  if (fault == 0) return absl::OkStatus();
  return Internal("a decoder found the fault {} in a blob", fault);
}

// Both sides of a boundary for predict; of others, nothing.
struct DeviceSides {
  static StatusOr<DeviceSides> Make(const Codec& codec, const Shape& shape,
                                    const ToolOptions& options, Stream* stream) {
    DeviceSides sides;
    if (codec.TableRows(options.vocabulary) == 0) return sides;
    const auto tables = predict::TablesShapeFor(codec, options.vocabulary, shape.channels);
    const std::vector<uint32_t> ids = MakeIds(shape, options.vocabulary, options.ids == "equal");
    Context context;
    context.token_ids = ids;
    context.learns = true;
    for (std::optional<DeviceTables>* side : {&sides.sender, &sides.receiver}) {
      LH_ASSIGN_OR_RETURN(*side, DeviceTables::Create(stream, tables, ids.size()));
      LH_RETURN_IF_ERROR((*side)->Load(context, stream));
    }
    return sides;
  }
  bool any() const { return sender.has_value(); }
  static const DeviceTables* Of(const std::optional<DeviceTables>& side) {
    return side ? &*side : nullptr;
  }
  // The receiver knows what the sender knows.
  Status Agree(Stream* stream) {
    if (!any()) return absl::OkStatus();
    LH_ASSIGN_OR_RETURN(predict::Tables tables, predict::Tables::Create(sender->shape()));
    LH_RETURN_IF_ERROR(sender->Save(stream, &tables));
    return receiver->Restore(tables, stream);
  }
  std::optional<DeviceTables> sender, receiver;
};

// Queues one operation on a set many times over, each between two events.
class Timer {
 public:
  static StatusOr<Timer> Create(const longhaul::cuda::Device& device, uint32_t repeats) {
    Timer timer;
    for (uint32_t k = 0; k <= 2 * repeats; ++k) {
      LH_ASSIGN_OR_RETURN(Event event, Event::Create(device, Event::Times::kKept));
      timer.events_.push_back(std::move(event));
    }
    return timer;
  }

  // The median in seconds of operation(k), k < repeats, queued back to back.
  template <class Operation>
  StatusOr<double> MedianSeconds(const Stream& stream, Operation&& operation) {
    return MedianSeconds(stream, operation, [](size_t) { return absl::OkStatus(); });
  }
  // With before(k) queued before each of them, which is not timed.
  template <class Operation, class Before>
  StatusOr<double> MedianSeconds(const Stream& stream, Operation&& operation, Before&& before) {
    const size_t repeats = events_.size() / 2;
    for (size_t k = 0; k < repeats; ++k) {
      LH_RETURN_IF_ERROR(before(k));
      LH_RETURN_IF_ERROR(events_[2 * k].Record(stream));
      LH_RETURN_IF_ERROR(operation(k));
      LH_RETURN_IF_ERROR(events_[2 * k + 1].Record(stream));
    }
    LH_RETURN_IF_ERROR(events_.back().Record(stream));
    LH_RETURN_IF_ERROR(events_.back().Await(Deadline::After(absl::Minutes(5))));
    std::vector<double> seconds;
    for (size_t k = 0; k < repeats; ++k) {
      LH_ASSIGN_OR_RETURN(const absl::Duration took, events_[2 * k + 1].Since(events_[2 * k]));
      seconds.push_back(absl::ToDoubleSeconds(took));
    }
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<long>(repeats / 2),
                     seconds.end());
    return std::max(seconds[repeats / 2], 1e-9);
  }

 private:
  std::vector<Event> events_;
};

struct Figures {
  double copy = 0, encode = 0, decode = 0, graph = 0;  // seconds
  size_t blob_bytes = 0;
};

StatusOr<Figures> Measure(const CudaCodec& codec, const NpyArray& array, const ToolOptions& options,
                          const longhaul::cuda::Device& device) {
  LH_ASSIGN_OR_RETURN(Stream stream, Stream::Create(device));
  const size_t count = std::min<size_t>(kTurnBytes / array.data.size() + 2, 64);
  std::vector<Set> sets;
  for (size_t k = 0; k < count; ++k) {
    LH_ASSIGN_OR_RETURN(Set set, MakeSet(device, codec, array, &stream));
    sets.push_back(std::move(set));
  }
  LH_ASSIGN_OR_RETURN(DeviceSides sides,
                      DeviceSides::Make(codec.cpu(), array.shape, options, &stream));
  const auto in_turn = [&](size_t k) -> Set& { return sets[k % count]; };
  const auto encode = [&](size_t k) {
    Set& set = in_turn(k);
    return codec.Encode({set.in.data_dev(), array.dtype, array.shape}, {},
                        {set.workspace.data_dev(), set.workspace.size()},
                        {set.blob.data_dev(), set.blob.size()}, stream, set.messages(),
                        DeviceSides::Of(sides.sender));
  };
  // Sets hold the same tensor, so one header serves all. Samples that are remembered have come
  // before.
  for (size_t k = 0; k < 2 * count; ++k) LH_RETURN_IF_ERROR(encode(k));
  std::vector<std::byte> header(kBlobHeaderBytes);
  LH_RETURN_IF_ERROR(stream.Copy(header.data(), sets[0].blob.data_dev(), header.size()));
  LH_ASSIGN_OR_RETURN(Event copied, Event::Create(device));
  LH_RETURN_IF_ERROR(copied.Record(stream));
  LH_RETURN_IF_ERROR(copied.Await(Deadline::After(absl::Minutes(1))));
  Figures figures;
  figures.blob_bytes = BlobBytes(header);
  const auto decode = [&](size_t k) {
    Set& set = in_turn(k);
    return codec.Decode(header, {set.blob.data_dev(), figures.blob_bytes},
                        {set.workspace.data_dev(), set.workspace.size()},
                        {set.out.data_dev(), array.dtype, array.shape},
                        static_cast<uint32_t*>(set.fault.data_dev()), stream, set.messages(),
                        DeviceSides::Of(sides.receiver));
  };
  const auto copy = [&](size_t k) {
    Set& set = in_turn(k);
    return stream.Copy(set.out.data_dev(), set.in.data_dev(), array.data.size());
  };
  LH_ASSIGN_OR_RETURN(const Graph graph, Graph::Capture(stream, [&]() -> Status {
                        LH_RETURN_IF_ERROR(encode(0));
                        return decode(0);
                      }));

  LH_ASSIGN_OR_RETURN(Timer timer, Timer::Create(device, options.repeats));
  for (int round = 0; round < 2; ++round) {  // the first warms up, and encodes every set
    for (size_t k = 0; k < count; ++k) LH_RETURN_IF_ERROR(encode(k));
    LH_ASSIGN_OR_RETURN(figures.copy, timer.MedianSeconds(stream, copy));
    LH_ASSIGN_OR_RETURN(figures.encode, timer.MedianSeconds(stream, encode));
    LH_RETURN_IF_ERROR(sides.Agree(&stream));
    // What teaches is decoded once.
    LH_ASSIGN_OR_RETURN(figures.decode, timer.MedianSeconds(stream, decode, [&](size_t k) {
      return sides.any() ? encode(k) : absl::OkStatus();
    }));
    LH_ASSIGN_OR_RETURN(figures.graph,
                        timer.MedianSeconds(stream, [&](size_t) { return graph.Launch(stream); }));
  }
  for (Set& set : sets) LH_RETURN_IF_ERROR(ExpectNoFault(set, &stream));
  return figures;
}

}  // namespace

std::optional<uint32_t> CudaIndex(const std::string& device) {
  if (device == "cuda") return 0;
  if (!device.starts_with("cuda:")) return std::nullopt;
  uint32_t index = 0;
  const char* const end = device.data() + device.size();
  const auto [stop, error] = std::from_chars(device.data() + 5, end, index);
  if (error != std::errc() || stop != end) return std::nullopt;
  return index;
}

StatusOr<std::string> BenchCuda(const ToolOptions& options) {
  if (options.threads != 1 || !options.kernels.empty()) {
    return absl::InvalidArgumentError("--threads and --kernels are for --device cpu");
  }
  LH_ASSIGN_OR_RETURN(const longhaul::cuda::Device device,
                      longhaul::cuda::Device::Open(CudaIndex(options.device).value_or(0)));
  LH_ASSIGN_OR_RETURN(const CudaCodec codec, CudaCodec::Create(options.codec));
  LH_ASSIGN_OR_RETURN(const Shape shape,
                      BenchShape(options.elements, options.samples, options.channels));
  LH_ASSIGN_OR_RETURN(const NpyArray in, MakeActivations(options.dtype.value_or(Dtype::kF32), shape,
                                                         options.data == "outliers"));
  LH_ASSIGN_OR_RETURN(const Figures figures, Measure(codec, in, options, device));

  const auto tensor_bytes = static_cast<double>(in.data.size());
  const auto blob_bytes = static_cast<double>(figures.blob_bytes);
  const auto record_bytes =
      static_cast<double>(shape.samples) * static_cast<double>(codec.cpu().MessageBytes(shape));
  // Read once, written once; records both.
  const double least_bytes = tensor_bytes + blob_bytes + 2 * record_bytes;
  const double copy_rate = 2 * tensor_bytes / figures.copy;
  const double encode_share = least_bytes / figures.encode / copy_rate;
  const double decode_share = least_bytes / figures.decode / copy_rate;
  const double bits = blob_bytes * 8 / static_cast<double>(shape.elements());
  if (options.json) {
    return nlohmann::ordered_json({{"codec", codec.cpu().name()},
                                   {"device", device.info().name},
                                   {"dtype", ToString(in.dtype)},
                                   {"samples", shape.samples},
                                   {"tokens", shape.tokens},
                                   {"channels", shape.channels},
                                   {"bits_per_element", bits},
                                   {"encode_us", figures.encode * 1e6},
                                   {"decode_us", figures.decode * 1e6},
                                   {"graph_us", figures.graph * 1e6},
                                   {"copy_us", figures.copy * 1e6},
                                   {"copy_gb_per_s", copy_rate / 1e9},
                                   {"encode_of_copy_rate", encode_share},
                                   {"decode_of_copy_rate", decode_share},
                                   {"repeats", options.repeats}})
               .dump(2) +
           "\n";
  }
  return fmt::format(
      "{}, {} x {} x {} of {}, {:.3f} bits an element; {}; median of {}\n"
      "encode {:9.1f} us  {:5.1f}% of the copy's rate (bytes of tensor and blob, each once{})\n"
      "decode {:9.1f} us  {:5.1f}%\n"
      "both   {:9.1f} us  one after the other in a graph, on one tensor\n"
      "copy   {:9.1f} us  {:.0f} GB/s (bytes read and written)\n",
      codec.cpu().name(), shape.samples, shape.tokens, shape.channels, ToString(in.dtype), bits,
      device.info().name, options.repeats, figures.encode * 1e6, 100 * encode_share,
      record_bytes > 0 ? "; of records, twice" : "", figures.decode * 1e6, 100 * decode_share,
      figures.graph * 1e6, figures.copy * 1e6, copy_rate / 1e9);
}

}  // namespace longhaul::codec
