"""Layouts of state dicts: timm and what shares its names, HF, CLIP, and more.

The names and shapes are documented by the files that the references write.
"""

from keras_vit.weights.layouts import CLIP
from keras_vit.weights.layouts import IMAGENET
from keras_vit.weights.layouts import Layout
from keras_vit.weights.layouts import Row
from keras_vit.weights.layouts import with_names

# fmt: off
TIMM_ROWS = (
    Row("conv",      "patch_embedding",             "patch_embed.proj"),
    Row("same",      "class_token/token",           "cls_token"),
    Row("same",      "distillation_token/token",    "dist_token"),
    Row("same",      "register_tokens/token",       "reg_token"),
    Row("positions", "position_embedding",          "pos_embed"),
    Row("norm",      "norm_pre",                    "norm_pre"),
    Row("norm",      "block_{i}/norm_1",            "blocks.{i}.norm1"),
    Row("qkv",       "block_{i}/attention/qkv",     "blocks.{i}.attn.qkv"),
    Row("out",       "block_{i}/attention/out",     "blocks.{i}.attn.proj"),
    Row("same",      "block_{i}/layer_scale_1/gamma", "blocks.{i}.ls1.gamma"),
    Row("norm",      "block_{i}/norm_2",            "blocks.{i}.norm2"),
    Row("dense",     "block_{i}/mlp/dense_1",       "blocks.{i}.mlp.fc1"),
    Row("dense",     "block_{i}/mlp/dense_2",       "blocks.{i}.mlp.fc2"),
    Row("same",      "block_{i}/layer_scale_2/gamma", "blocks.{i}.ls2.gamma"),
    Row("norm",      "norm",                        "fc_norm", when=lambda c: c.head.norm == "after_pooling"),
    Row("norm",      "norm",                        "norm"),
    Row("same",      "pooling/probe",               "attn_pool.latent"),
    Row("dense",     "pooling/query",               "attn_pool.q"),
    Row("kv",        "pooling/key_value",           "attn_pool.kv"),
    Row("dense",     "pooling/out",                 "attn_pool.proj"),
    Row("norm",      "pooling/norm",                "attn_pool.norm"),
    Row("dense",     "pooling/mlp/dense_1",         "attn_pool.mlp.fc1"),
    Row("dense",     "pooling/mlp/dense_2",         "attn_pool.mlp.fc2"),
    Row("dense",     "head",                        "head"),
    Row("dense",     "head_distillation",           "head_dist"),
)
HF_ROWS = (
    Row("conv",      "patch_embedding",             "embeddings.patch_embeddings.projection"),
    Row("same",      "class_token/token",           "embeddings.cls_token"),
    Row("same",      "distillation_token/token",    "embeddings.distillation_token"),
    Row("same",      "register_tokens/token",       "embeddings.register_tokens"),
    Row("positions", "position_embedding",          "embeddings.position_embeddings"),
    Row("norm",      "block_{i}/norm_1",            "encoder.layer.{i}.layernorm_before"),
    Row("qkv",       "block_{i}/attention/qkv",     (
                     "encoder.layer.{i}.attention.attention.query",
                     "encoder.layer.{i}.attention.attention.key",
                     "encoder.layer.{i}.attention.attention.value")),
    Row("out",       "block_{i}/attention/out",     "encoder.layer.{i}.attention.output.dense"),
    Row("norm",      "block_{i}/norm_2",            "encoder.layer.{i}.layernorm_after"),
    Row("dense",     "block_{i}/mlp/dense_1",       "encoder.layer.{i}.intermediate.dense"),
    Row("dense",     "block_{i}/mlp/dense_2",       "encoder.layer.{i}.output.dense"),
    Row("norm",      "norm",                        "layernorm"),
    Row("dense",     "pre_logits",                  "pooler.dense"),
    Row("dense",     "head",                        "^cls_classifier", when=lambda c: c.num_classifiers == 2),
    Row("dense",     "head",                        "^classifier"),
    Row("dense",     "head_distillation",           "^distillation_classifier"),
)
HF_DINOV2_ROWS = (
    *HF_ROWS[:5],
    Row("norm",      "block_{i}/norm_1",            "encoder.layer.{i}.norm1"),
    *HF_ROWS[6:8],
    Row("same",      "block_{i}/layer_scale_1/gamma", "encoder.layer.{i}.layer_scale1.lambda1"),
    Row("norm",      "block_{i}/norm_2",            "encoder.layer.{i}.norm2"),
    Row("dense",     "block_{i}/mlp/dense_1",       "encoder.layer.{i}.mlp.weights_in", when=lambda c: c.block.activation == "swiglu"),
    Row("dense",     "block_{i}/mlp/dense_2",       "encoder.layer.{i}.mlp.weights_out", when=lambda c: c.block.activation == "swiglu"),
    Row("dense",     "block_{i}/mlp/dense_1",       "encoder.layer.{i}.mlp.fc1"),
    Row("dense",     "block_{i}/mlp/dense_2",       "encoder.layer.{i}.mlp.fc2"),
    Row("same",      "block_{i}/layer_scale_2/gamma", "encoder.layer.{i}.layer_scale2.lambda1"),
    *HF_ROWS[11:],
)
CLIP_ROWS = (
    Row("conv",      "patch_embedding",             "conv1"),
    Row("flat",      "class_token/token",           "class_embedding"),
    Row("flat_positions", "position_embedding",     "positional_embedding"),
    Row("norm",      "norm_pre",                    "ln_pre"),
    Row("norm",      "block_{i}/norm_1",            "transformer.resblocks.{i}.ln_1"),
    Row("qkv",       "block_{i}/attention/qkv",     "transformer.resblocks.{i}.attn.in_proj_"),
    Row("out",       "block_{i}/attention/out",     "transformer.resblocks.{i}.attn.out_proj"),
    Row("same",      "block_{i}/layer_scale_1/gamma", "transformer.resblocks.{i}.ls_1.gamma"),
    Row("norm",      "block_{i}/norm_2",            "transformer.resblocks.{i}.ln_2"),
    Row("dense",     "block_{i}/mlp/dense_1",       "transformer.resblocks.{i}.mlp.c_fc"),
    Row("dense",     "block_{i}/mlp/dense_2",       "transformer.resblocks.{i}.mlp.c_proj"),
    Row("same",      "block_{i}/layer_scale_2/gamma", "transformer.resblocks.{i}.ls_2.gamma"),
    Row("norm",      "norm",                        "ln_post"),
    Row("same",      "head/kernel",                 "proj"),
)
HF_CLIP_ROWS = (
    Row("conv",      "patch_embedding",             "embeddings.patch_embedding"),
    Row("flat",      "class_token/token",           "embeddings.class_embedding"),
    Row("flat_positions", "position_embedding",     "embeddings.position_embedding.weight"),
    Row("norm",      "norm_pre",                    "pre_layrnorm"),
    Row("norm",      "block_{i}/norm_1",            "encoder.layers.{i}.layer_norm1"),
    Row("qkv",       "block_{i}/attention/qkv",     (
                     "encoder.layers.{i}.self_attn.q_proj",
                     "encoder.layers.{i}.self_attn.k_proj",
                     "encoder.layers.{i}.self_attn.v_proj")),
    Row("out",       "block_{i}/attention/out",     "encoder.layers.{i}.self_attn.out_proj"),
    Row("norm",      "block_{i}/norm_2",            "encoder.layers.{i}.layer_norm2"),
    Row("dense",     "block_{i}/mlp/dense_1",       "encoder.layers.{i}.mlp.fc1"),
    Row("dense",     "block_{i}/mlp/dense_2",       "encoder.layers.{i}.mlp.fc2"),
    Row("norm",      "norm",                        "post_layernorm"),
    Row("same",      "pooling/probe",               "head.probe"),
    Row("probe",     "pooling",                     "head.attention.in_proj_"),
    Row("dense",     "pooling/out",                 "head.attention.out_proj"),
    Row("norm",      "pooling/norm",                "head.layernorm"),
    Row("dense",     "pooling/mlp/dense_1",         "head.mlp.fc1"),
    Row("dense",     "pooling/mlp/dense_2",         "head.mlp.fc2"),
    Row("dense",     "head",                        "^visual_projection"),
)
TORCHVISION_ROWS = (
    Row("conv",      "patch_embedding",             "conv_proj"),
    Row("same",      "class_token/token",           "class_token"),
    Row("positions", "position_embedding",          "encoder.pos_embedding"),
    Row("norm",      "block_{i}/norm_1",            "encoder.layers.encoder_layer_{i}.ln_1"),
    Row("qkv",       "block_{i}/attention/qkv",     "encoder.layers.encoder_layer_{i}.self_attention.in_proj_"),
    Row("out",       "block_{i}/attention/out",     "encoder.layers.encoder_layer_{i}.self_attention.out_proj"),
    Row("norm",      "block_{i}/norm_2",            "encoder.layers.encoder_layer_{i}.ln_2"),
    Row("dense",     "block_{i}/mlp/dense_1",       "encoder.layers.encoder_layer_{i}.mlp.0"),
    Row("dense",     "block_{i}/mlp/dense_2",       "encoder.layers.encoder_layer_{i}.mlp.3"),
    Row("norm",      "norm",                        "encoder.ln"),
    Row("dense",     "pre_logits",                  "heads.pre_logits"),
    Row("dense",     "head",                        "heads.head"),
)
# fmt: on

TIMM = Layout(
    "timm",
    "torch",
    TIMM_ROWS,
    marks=("patch_embed.proj.weight", "blocks.0.attn.qkv.weight"),
    prefixes=("", "visual.trunk."),
    lacks=("class_token/token",),
    ignored=("^text.*", "^logit_*", "decoder*", "mask_token"),
    defaults={"resize": "crop", "resampling": "bicubic_antialias"},
)
# What the originals call differently; the rest of the names is timm's.
DEIT3 = with_names(
    TIMM,
    "deit3",
    {"ls1.gamma": "gamma_1", "ls2.gamma": "gamma_2"},
    defaults={"resize": "crop", "resampling": "bicubic", **IMAGENET},
)._replace(marks=("patch_embed.proj.weight", "blocks.0.gamma_1"), lacks=())
DINOV2 = with_names(
    TIMM,
    "dinov2",
    {"reg_token": "register_tokens"},
    defaults={"resize": "crop", "resampling": "dino", **IMAGENET},
)._replace(
    marks=("patch_embed.proj.weight", "mask_token", "blocks.0.ls1.gamma"),
    lacks=(),
)
DINOV2_SWIGLU = with_names(
    DINOV2,
    "dinov2_swiglu",
    {"mlp.fc1": "mlp.w12", "mlp.fc2": "mlp.w3"},
)._replace(marks=("patch_embed.proj.weight", "blocks.0.mlp.w12.weight"))

MAE_PROBE = TIMM._replace(
    name="mae_probe",
    rows=(
        *TIMM_ROWS[:-2],
        Row(
            "probed",
            "head",
            (
                "head.0.running_mean",
                "head.0.running_var",
                "head.1.weight",
                "head.1.bias",
            ),
        ),
    ),
    marks=("patch_embed.proj.weight", "head.0.running_mean"),
    ignored=("head.0.num_batches_tracked",),
    lacks=(),
    defaults={"resize": "crop", "resampling": "bicubic", **IMAGENET},
)
HF = Layout(
    "hf",
    "torch",
    HF_ROWS,
    marks=(
        "embeddings.patch_embeddings.projection.weight",
        "encoder.layer.0.layernorm_before.weight",
    ),
    prefixes=("vit.", "deit.", ""),
    ignored=("*mask_token", "^decoder.*"),
    defaults={"epsilon": 1e-12, "resampling": "bicubic"},
)
HF_V5 = with_names(
    HF,
    "hf_v5",
    {
        "encoder.layer.": "layers.",
        "attention.attention.query": "attention.q_proj",
        "attention.attention.key": "attention.k_proj",
        "attention.attention.value": "attention.v_proj",
        "attention.output.dense": "attention.o_proj",
        "intermediate.dense": "mlp.fc1",
        "output.dense": "mlp.fc2",
    },
)
HF_DINOV2 = Layout(
    "hf_dinov2",
    "torch",
    HF_DINOV2_ROWS,
    marks=(
        "embeddings.patch_embeddings.projection.weight",
        "encoder.layer.0.layer_scale1.lambda1",
    ),
    prefixes=("dinov2_with_registers.", "dinov2.", ""),
    ignored=("*mask_token",),
    defaults={"resize": "crop", "resampling": "bicubic", **IMAGENET},
)
OPENAI_CLIP = Layout(
    "openai_clip",
    "torch",
    CLIP_ROWS,
    marks=("conv1.weight", "class_embedding", "ln_pre.weight"),
    prefixes=("visual.",),
    ignored=("^[!v]*", "^vocab_size"),  # the text tower
    lacks=("patch_embedding/bias", "head/bias"),
    defaults={
        "epsilon": 1e-5,
        "activation": "quick_gelu",
        "head_bias": False,
        "resize": "crop",
        "resampling": "bicubic",
        **CLIP,
    },
)
# The same names; only OpenAI's files carry these numbers.
OPENAI_CLIP = OPENAI_CLIP._replace(
    marks=(*OPENAI_CLIP.marks, "^input_resolution")
)
OPEN_CLIP = OPENAI_CLIP._replace(
    name="open_clip",
    marks=OPENAI_CLIP.marks[:-1],
    defaults={**OPENAI_CLIP.defaults, "activation": "gelu"},
)
HF_CLIP = Layout(
    "hf_clip",
    "torch",
    HF_CLIP_ROWS,
    marks=("embeddings.class_embedding", "pre_layrnorm.weight"),
    prefixes=("vision_model.", ""),
    ignored=(
        "^text_model.*",
        "^text_projection.*",
        "^logit_*",
        "*position_ids",
    ),
    lacks=(*OPENAI_CLIP.lacks, "head/kernel"),
    defaults=OPENAI_CLIP.defaults,
)
HF_SIGLIP = HF_CLIP._replace(
    name="hf_siglip",
    marks=("embeddings.patch_embedding.weight", "head.probe"),
    lacks=("class_token/token",),
    defaults={"activation": "gelu_tanh", "resampling": "bicubic"},
)
TORCHVISION = Layout(
    "torchvision",
    "torch",
    TORCHVISION_ROWS,
    marks=("conv_proj.weight", "encoder.layers.encoder_layer_0.mlp.0.weight"),
    defaults={"resize": "crop", "resampling": "bicubic", **IMAGENET},
)
TORCHVISION_OLD = with_names(
    TORCHVISION,
    "torchvision_old",
    {"mlp.0": "mlp.linear_1", "mlp.3": "mlp.linear_2"},
)
