"""The 19 tasks of VTAB-1k, as data sets of tensorflow-datasets."""

# Zhai et al., 2019, "The Visual Task Adaptation Benchmark", table 2; names and
# splits as in tensorflow-datasets 4.9. 800 images train, 200 validate; the
# accuracy is that of the whole test split.
# fmt: off
VTAB = {
    # task:             (data set,                      test split, classes, label)
    "caltech101":       ("caltech101",                  "test",        102, "label"),
    "cifar100":         ("cifar100",                    "test",        100, "label"),
    "dtd":              ("dtd",                         "test",         47, "label"),
    "flowers102":       ("oxford_flowers102",           "test",        102, "label"),
    "pets":             ("oxford_iiit_pet",             "test",         37, "label"),
    "sun397":           ("sun397",                      "test",        397, "label"),
    "svhn":             ("svhn_cropped",                "test",         10, "label"),
    "patch_camelyon":   ("patch_camelyon",              "test",          2, "label"),
    "eurosat":          ("eurosat",                     "train[21600:]", 10, "label"),
    "resisc45":         ("resisc45",                    "train[25200:]", 45, "label"),
    "retinopathy":      ("diabetic_retinopathy_detection/btgraham-300", "test", 5, "label"),
    "clevr_count":      ("clevr",                       "validation",    8, "count"),
    "clevr_distance":   ("clevr",                       "validation",    6, "distance"),
    "dmlab":            ("dmlab",                       "test",          6, "label"),
    "kitti_distance":   ("kitti",                       "test",          4, "distance"),
    "dsprites_location": ("dsprites",                   "train[663552:]", 16, "label_x_position"),
    "dsprites_orientation": ("dsprites",                "train[663552:]", 16, "label_orientation"),
    "smallnorb_azimuth": ("smallnorb",                  "test",         18, "label_azimuth"),
    "smallnorb_elevation": ("smallnorb",                "test",          9, "label_elevation"),
}
# fmt: on
