"""The networks of the zoo: what others wrote, by name, with random weights and inputs of fixed shapes; nothing is downloaded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import Any

import torch
from torch import nn

from .models.weights import settle
from .models.whisper import BANDS, FRAMES, WhisperEncoder

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Network:
    """A network of a package.

    Attributes
    ----------
    kind
        What it is for.
    make
        Returns it, its weights random.
    shapes
        Of its inputs, which are all of floating point.
    """

    kind: str
    make: Callable[[], nn.Module]
    shapes: Shapes


class _Called(nn.Module):  # type: ignore[misc]
    """A network called in another way: by a method, with further arguments, or for one of what it returns."""

    def __init__(self, network: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.network, self._call = network, call

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self._call(self.network, *inputs)


def _package(name: str) -> ModuleType:
    """Return a package whose wheel may be for CUDA, without loading its library, which this PyTorch cannot, and which no network calls."""
    if torch.version.cuda is None:
        if name != "torchaudio" and _is_for_cuda("torchvision"):
            missing = "torchvision._meta_registrations"
            sys.modules.setdefault(missing, ModuleType(missing))
        if name == "torchaudio" and _is_for_cuda("torchaudio"):
            extension: Any = ModuleType("torchaudio._extension")
            extension._IS_TORCHAUDIO_EXT_AVAILABLE = extension._IS_ALIGN_AVAILABLE = False
            extension.fail_if_no_align = lambda function: function
            sys.modules.setdefault(extension.__name__, extension)
    return import_module(name)


def _is_for_cuda(package: str) -> bool:
    return not version(package).endswith("+cpu")  # those of the Python Package Index have no suffix


def _vision(name: str, size: int = 224, kind: str = "classification", **options: Any) -> Network:
    folder = "models.segmentation" if kind == "segmentation" else "models"

    def make() -> nn.Module:
        _package("torchvision")
        options.update(weights_backbone=None) if kind == "segmentation" else None
        network = getattr(import_module(f"torchvision.{folder}"), name)(weights=None, **options)
        return _Called(network, lambda each, x: each(x)["out"]) if kind == "segmentation" else network

    return Network(kind, make, ((1, 3, size, size),))


def _timm(name: str, size: int = 224, kind: str = "classification", **options: Any) -> Network:
    return Network(kind, lambda: _package("timm").create_model(name, **options), ((1, 3, size, size),))


def _backbone(name: str, size: int) -> Network:
    """Return a backbone that gives the features of every scale, as detectors take them."""
    return _timm(name, size, "detection backbone", features_only=True)


def _smp(name: str, encoder: str = "resnet34", size: int = 256) -> Network:
    def make() -> nn.Module:
        return getattr(_package("segmentation_models_pytorch"), name)(encoder, encoder_weights=None, classes=4)

    return Network("segmentation", make, ((1, 3, size, size),))


def _audio(
    name: str, kind: str, *shapes: tuple[int, ...], call: Callable[..., Any] | None = None, **options: Any
) -> Network:
    def make() -> nn.Module:
        network = getattr(_package("torchaudio").models, name)(**options)
        return network if call is None else _Called(network, call)

    return Network(kind, make, shapes)


def _diffusers(name: str, kind: str, *shapes: tuple[int, ...], call: Callable[..., Any], **options: Any) -> Network:
    return Network(kind, lambda: _Called(getattr(_package("diffusers"), name)(**options), call), shapes)


def _layers(network: Any, data: torch.Tensor) -> torch.Tensor:
    """Return what a Conformer makes of whole sequences: without a mask, which depends on numbers in a tensor."""
    data = data.transpose(0, 1)
    for layer in network.conformer_layers:
        data = layer(data, None)
    return data.transpose(0, 1)


def _sample(network: Any, *inputs: torch.Tensor) -> Any:
    return network(*inputs, return_dict=False)[0]


def _decoded(network: Any, latent: torch.Tensor) -> Any:
    return network.decode(latent, return_dict=False)[0]


def _labelled(network: Any, sample: torch.Tensor, step: torch.Tensor) -> Any:
    label = torch.ones(1, dtype=torch.int64)
    return network(sample, timestep=step, class_labels=label, return_dict=False)[0]


def _span() -> nn.Module:
    _package("torchvision")
    return _package("spandrel.architectures.SPAN.__arch.span").SPAN(num_in_ch=3, num_out_ch=3)


def _spectrograms() -> nn.Module:
    """Return the Audio Spectrogram Transformer (Gong et al. 2021): DeiT, whose patches of 16x16 are 10 apart."""
    made: nn.Module = _package("timm").create_model("deit_base_distilled_patch16_224", img_size=(192, 1616), in_chans=1)
    made.patch_embed.proj, made.patch_embed.img_size = nn.Conv2d(1, 768, 16, 10), None
    return made


_SMALL_UNET = {
    "block_out_channels": (64, 128, 256),
    "layers_per_block": 1,
    "norm_num_groups": 16,
    "sample_size": 32,
}

NETWORKS: dict[str, Network] = {
    # torchvision
    "alexnet": _vision("alexnet"),
    "vgg16": _vision("vgg16"),
    "googlenet": _vision("googlenet", aux_logits=False, init_weights=False),
    "inception_v3": _vision("inception_v3", 299, aux_logits=False, init_weights=False),
    "squeezenet1_1": _vision("squeezenet1_1"),
    "resnet18": _vision("resnet18"),
    "resnet50": _vision("resnet50"),
    "resnext50_32x4d": _vision("resnext50_32x4d"),
    "densenet121": _vision("densenet121"),
    "mobilenet_v2": _vision("mobilenet_v2"),
    "mobilenet_v3_large": _vision("mobilenet_v3_large"),
    "mnasnet1_0": _vision("mnasnet1_0"),
    "shufflenet_v2_x1_0": _vision("shufflenet_v2_x1_0"),
    "efficientnet_v2_s": _vision("efficientnet_v2_s"),
    "regnet_y_400mf": _vision("regnet_y_400mf"),
    "convnext_tiny": _vision("convnext_tiny"),
    "vit_b_16": _vision("vit_b_16"),
    "swin_t": _vision("swin_t"),
    "maxvit_t": _vision("maxvit_t"),
    "fcn_resnet50": _vision("fcn_resnet50", 224, "segmentation"),
    "deeplabv3_mobilenet_v3_large": _vision("deeplabv3_mobilenet_v3_large", 224, "segmentation"),
    "lraspp_mobilenet_v3_large": _vision("lraspp_mobilenet_v3_large", 224, "segmentation"),
    # timm
    "levit_128s": _timm("levit_128s"),
    "efficientnet_lite0": _timm("efficientnet_lite0"),
    "mixnet_s": _timm("mixnet_s"),
    "mobileone_s0": _timm("mobileone_s0"),
    "fastvit_t8": _timm("fastvit_t8", 256),
    "repghostnet_100": _timm("repghostnet_100"),
    "ghostnet_100": _timm("ghostnet_100"),
    "convnextv2_atto": _timm("convnextv2_atto"),
    "xception41": _timm("xception41", 299),
    "skresnet18": _timm("skresnet18"),
    "cspresnet50": _timm("cspresnet50"),
    "efficientformer_l1": _timm("efficientformer_l1"),
    "poolformer_s12": _timm("poolformer_s12"),
    "coat_lite_tiny": _timm("coat_lite_tiny"),
    "edgenext_small": _timm("edgenext_small"),
    "mobilevit_s": _timm("mobilevit_s", 256),
    "mobilenetv4_conv_small": _timm("mobilenetv4_conv_small"),
    "repvgg_a0": _timm("repvgg_a0"),
    "selecsls42b": _timm("selecsls42b"),
    "gernet_s": _timm("gernet_s"),
    "dla34": _timm("dla34"),
    "resnest14d": _timm("resnest14d"),
    "res2net50_26w_4s": _timm("res2net50_26w_4s"),
    "rexnet_100": _timm("rexnet_100"),
    "dpn68": _timm("dpn68"),
    "eca_nfnet_l0": _timm("eca_nfnet_l0"),
    "mixer_s32": _timm("mixer_s32_224"),
    "gmlp_ti16": _timm("gmlp_ti16_224"),
    "deit_tiny": _timm("deit_tiny_patch16_224"),
    "xcit_nano": _timm("xcit_nano_12_p16_224"),
    "pvt_v2_b0": _timm("pvt_v2_b0"),
    "efficientvit_b0": _timm("efficientvit_b0"),
    "tiny_vit_5m": _timm("tiny_vit_5m_224"),
    "coatnet_nano": _timm("coatnet_nano_rw_224"),
    "repvit_m0_9": _timm("repvit_m0_9"),
    "lcnet_100": _timm("lcnet_100"),
    "inception_next_atto": _timm("inception_next_atto"),
    "starnet_s1": _timm("starnet_s1"),
    "fasternet_t0": _timm("fasternet_t0"),
    "mambaout_femto": _timm("mambaout_femto"),
    "efficientvit_m0": _timm("efficientvit_m0"),
    "efficientformerv2_s0": _timm("efficientformerv2_s0"),
    "shvit_s1": _timm("shvit_s1"),
    "eva02_tiny": _timm("eva02_tiny_patch14_224"),
    "mobilevitv2_050": _timm("mobilevitv2_050", 256),
    "gcvit_xxtiny": _timm("gcvit_xxtiny"),
    "davit_tiny": _timm("davit_tiny"),
    "hiera_tiny": _timm("hiera_tiny_224"),
    "cait_xxs24": _timm("cait_xxs24_224"),
    "crossvit_tiny": _timm("crossvit_tiny_240", 240),
    "pit_ti": _timm("pit_ti_224"),
    "botnet26t": _timm("botnet26t_256", 256),
    "visformer_tiny": _timm("visformer_tiny"),
    "rdnet_tiny": _timm("rdnet_tiny"),
    "volo_d1": _timm("volo_d1_224"),
    "focalnet_tiny": _timm("focalnet_tiny_srf"),
    "sequencer2d_s": _timm("sequencer2d_s"),
    "hrnet_w18_small": _backbone("hrnet_w18_small", 256),
    "darknet53": _backbone("darknet53", 256),
    "ese_vovnet19b_dw": _backbone("ese_vovnet19b_dw", 256),
    "hgnetv2_b0": _backbone("hgnetv2_b0", 256),
    # segmentation-models-pytorch
    "smp_unet": _smp("Unet"),
    "smp_unetplusplus": _smp("UnetPlusPlus", "resnet18"),
    "smp_linknet": _smp("Linknet"),
    "smp_fpn": _smp("FPN"),
    "smp_manet": _smp("MAnet"),
    "smp_deeplabv3plus": _smp("DeepLabV3Plus"),
    "smp_pspnet": _smp("PSPNet"),
    "smp_segformer": _smp("Segformer", "mit_b0"),
    # torchaudio
    "conformer": _audio(
        "Conformer",
        "speech",
        (1, 200, 80),
        call=_layers,
        input_dim=80,
        num_heads=4,
        ffn_dim=256,
        num_layers=4,
        depthwise_conv_kernel_size=31,
    ),
    "wav2letter": _audio("Wav2Letter", "speech", (1, 40, 300), num_classes=40, input_type="mfcc", num_features=40),
    "wav2vec2_base": _audio("wav2vec2_base", "speech", (1, 16000), call=lambda network, x: network(x)[0]),
    "deepspeech": _audio("DeepSpeech", "speech", (1, 1, 100, 64), n_feature=64, n_hidden=512),
    "conv_tasnet": _audio("ConvTasNet", "separation", (1, 1, 16000)),
    "wavernn": _audio(
        "WaveRNN",
        "vocoder",
        (1, 1, 2 * 20),
        (1, 1, 64, 6),
        upsample_scales=[5, 2, 2],
        n_classes=64,
        hop_length=20,
        n_rnn=64,
        n_fc=64,
        n_res_block=4,
        n_freq=64,
        n_hidden=64,
        n_output=64,
    ),
    # diffusers
    "unet2d": _diffusers(
        "UNet2DModel",
        "diffusion",
        (1, 3, 32, 32),
        (1,),
        call=_sample,
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
        **_SMALL_UNET,
    ),
    "unet2d_condition": _diffusers(
        "UNet2DConditionModel",
        "diffusion",
        (1, 4, 32, 32),
        (1,),
        (1, 77, 128),
        call=_sample,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=128,
        **_SMALL_UNET,
    ),
    "dit": _diffusers(
        "DiTTransformer2DModel",
        "diffusion",
        (1, 4, 32, 32),
        (1,),
        call=_labelled,
        num_attention_heads=6,
        attention_head_dim=64,
        in_channels=4,
        num_layers=6,
        sample_size=32,
        num_embeds_ada_norm=100,
    ),
    "vae_decoder": _diffusers(
        "AutoencoderKL",
        "diffusion",
        (1, 4, 32, 32),
        call=_decoded,
        block_out_channels=(64, 128, 128),
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        layers_per_block=1,
        norm_num_groups=16,
    ),
    "tiny_vae_decoder": _diffusers("AutoencoderTiny", "diffusion", (1, 4, 32, 32), call=_decoded),
    "oobleck_decoder": _diffusers(
        "AutoencoderOobleck",
        "vocoder",
        (1, 64, 50),
        call=_decoded,
        encoder_hidden_size=32,
        decoder_channels=32,
        downsampling_ratios=[2, 4, 4, 8],
        channel_multiples=[1, 2, 4, 8],
    ),
    # reported: at the peak of their products
    "mobilenetv2_140": _timm("mobilenetv2_140"),
    "coat_small": _timm("coat_small"),
    "whisper_tiny_encoder": Network("speech", WhisperEncoder, ((1, BANDS, FRAMES),)),
    "ast_base": Network("speech", _spectrograms, ((1, 1, 128, 1024),)),
    # spandrel, whose forward writes its own weights
    "span": Network("restoration", _span, ((1, 3, 64, 64),)),
}


def load(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return a network for inference, settled on its inputs, and them: the same in every call."""
    network = NETWORKS[name]
    torch.manual_seed(0)
    model = network.make()
    inputs = tuple(torch.randn(shape) for shape in network.shapes)
    _draw_what_is_alike(model)
    return settle(model, inputs), inputs


@torch.no_grad()  # type: ignore[untyped-decorator]
def _draw_what_is_alike(model: nn.Module) -> None:
    """Draw parameters that are filled with one number, near 0 or 1: scales of 1e-6 would hide whole branches, and zeros biases."""
    for parameter in model.parameters():
        first = parameter.flatten()[0]
        if parameter.numel() > 1 and torch.equal(parameter, first.expand_as(parameter)):
            parameter.normal_(0, 0.1) if first == 0 else parameter.uniform_(0.5, 1.5)
