// longhaul-codec bench: rates of a codec beside that of memcpy (on one core), in the same run.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "codec/predict/tables.h"
#include "codec/registry.h"
#include "codec/simd/targets.h"
#include "codec/thread_pool.h"
#include "codec/tool/bench_data.h"
#include "codec/tool/commands.h"
#include "codec/tool/files.h"
#include "codec/tool/measure.h"

namespace longhaul::codec {
namespace {

// `before` is not timed.
template <class Function, class Before>
double MedianSeconds(uint32_t repeats, Function&& function, Before&& before) {
  std::vector<double> seconds;
  for (uint32_t k = 0; k < repeats; ++k) {
    before();
    const MonoTime start = Now();
    function();
    seconds.push_back(absl::ToDoubleSeconds(Now() - start));
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<long>(repeats / 2),
                   seconds.end());
  return std::max(seconds[repeats / 2], 1e-9);
}

template <class Function>
double MedianSeconds(uint32_t repeats, Function&& function) {
  return MedianSeconds(repeats, function, [] {});
}

// Both sides of a boundary for predict; of others, nothing.
struct Sides {
  static StatusOr<Sides> Make(const Codec& codec, const Shape& shape, const ToolOptions& options) {
    Sides sides;
    if (codec.TableRows(options.vocabulary) == 0) return sides;
    const auto tables = predict::TablesShapeFor(codec, options.vocabulary, shape.channels);
    LH_ASSIGN_OR_RETURN(sides.sender, predict::Tables::Create(tables));
    LH_ASSIGN_OR_RETURN(sides.receiver, predict::Tables::Create(tables));
    sides.ids = MakeIds(shape, options.vocabulary, options.ids == "equal");
    return sides;
  }
  bool any() const { return sender.has_value(); }
  Context Of(std::optional<predict::Tables>* side, const Context& base) {
    Context context = base;
    if (!any()) return context;
    context.tables = &**side;
    context.token_ids = ids;
    context.learns = true;
    return context;
  }
  // The receiver knows what the sender knows.
  void Agree() {
    if (!any()) return;
    receiver->CopyFrom(*sender);
  }
  std::optional<predict::Tables> sender, receiver;
  std::vector<uint32_t> ids;
};

}  // namespace

StatusOr<std::string> Bench(const ToolOptions& options) {
  if (options.device != "cpu") return BenchCuda(options);
  LH_RETURN_IF_ERROR(UseKernelTarget(options.kernels));
  LH_ASSIGN_OR_RETURN(const BothEnds ends, OpenCodec(options.codec, options.python));
  const std::shared_ptr<const Codec>& codec = ends.sender;
  ThreadPool pool(options.threads);
  Context context;
  if (options.threads > 1) context.parallel = &pool;
  LH_ASSIGN_OR_RETURN(const Shape shape,
                      BenchShape(options.elements, options.samples, options.channels));
  LH_ASSIGN_OR_RETURN(const NpyArray in, MakeActivations(options.dtype.value_or(Dtype::kF32), shape,
                                                         options.data == "outliers"));
  LH_ASSIGN_OR_RETURN(NpyArray out, MakeArray(in.dtype, shape));
  // Also the first, untimed round: pages are touched, tables are in the cache.
  LH_ASSIGN_OR_RETURN(Encoded encoded, EncodeArray(*codec, in, {}));
  AlignedBuffer workspace(codec->WorkspaceBytes(shape));
  LH_ASSIGN_OR_RETURN(Sides sides, Sides::Make(*codec, shape, options));
  Status status = ends.receiver->Decode(encoded.bytes(), {}, workspace.span(), out.mutable_view());

  const auto bytes = static_cast<double>(in.data.size());
  const double copy = MedianSeconds(options.repeats, [&] {
    std::memcpy(out.data.span().data(), in.data.span().data(), in.data.size());
  });
  const auto encode_once = [&] {
    if (status.ok()) {
      status = codec->Encode(in.view(), sides.Of(&sides.sender, context), workspace.span(),
                             encoded.blob.span(), &encoded.result);
    }
  };
  const double encode = MedianSeconds(options.repeats, encode_once);
  sides.Agree();
  const double decode = MedianSeconds(
      options.repeats,
      [&] {
        if (status.ok()) {
          status = ends.receiver->Decode(encoded.bytes(), sides.Of(&sides.receiver, context),
                                         workspace.span(), out.mutable_view());
        }
      },
      // What teaches is decoded once.
      [&] {
        if (sides.any()) encode_once();
      });
  LH_RETURN_IF_ERROR(status);
  const double bits =
      static_cast<double>(encoded.result.bytes) * 8 / static_cast<double>(shape.elements());
  if (options.json) {
    return nlohmann::ordered_json({{"codec", codec->name()},
                                   {"dtype", ToString(in.dtype)},
                                   {"elements", shape.elements()},
                                   {"bits_per_element", bits},
                                   {"encode_gb_per_s", bytes / encode / 1e9},
                                   {"decode_gb_per_s", bytes / decode / 1e9},
                                   {"memcpy_gb_per_s", bytes / copy / 1e9},
                                   {"kernels", KernelTarget()},
                                   {"threads", options.threads},
                                   {"repeats", options.repeats}})
               .dump(2) +
           "\n";
  }
  return fmt::format(
      "{}, {} elements of {}, {:.3f} bits an element; {}, {} thread{}; median of {}\nencode "
      "{:8.3f} GB/s  {:5.1f}% "
      "of memcpy\ndecode {:8.3f} GB/s  {:5.1f}% of memcpy\nmemcpy {:8.3f} GB/s (bytes of the "
      "tensor)\n",
      codec->name(), shape.elements(), ToString(in.dtype), bits, KernelTarget(), options.threads,
      options.threads == 1 ? "" : "s", options.repeats, bytes / encode / 1e9, 100 * copy / encode,
      bytes / decode / 1e9, 100 * copy / decode, bytes / copy / 1e9);
}

}  // namespace longhaul::codec
