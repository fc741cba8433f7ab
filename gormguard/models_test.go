package gormguard_test

import (
	"gorm.io/gorm"
)

// The models of the tests. A row's SKU is the name of its resource.
type (
	Item struct {
		ID      int64 `gorm:"primaryKey;autoIncrement:false"`
		SKU     string
		Stock   int
		Note    string
		OwnerID *int64
		Tags    []Tag `gorm:"many2many:item_tags"`
		Token   int64 `gorm:"column:fence_token;fence;not null;default:0"`
	}
	Doc struct { // soft delete, with DeletedAt before the version column
		ID        int64 `gorm:"primaryKey;autoIncrement:false"`
		SKU       string
		Body      string
		DeletedAt gorm.DeletedAt
		Token     int64 `gorm:"column:fence_token;fence;not null;default:0"`
	}
	Owner struct {
		ID     int64 `gorm:"primaryKey;autoIncrement:false"`
		SKU    string
		Name   string
		Items  []Item
		Badge  *Badge
		BossID *int64
		Boss   *Boss
		Token  int64 `gorm:"column:fence_token;fence;not null;default:0"`
	}
	Badge struct { // has one
		ID      int64 `gorm:"primaryKey;autoIncrement:false"`
		Text    string
		OwnerID *int64
		Token   int64 `gorm:"column:fence_token;fence;not null;default:0"`
	}
	Boss struct { // belongs to
		ID    int64 `gorm:"primaryKey;autoIncrement:false"`
		Name  string
		Token int64 `gorm:"column:fence_token;fence;not null;default:0"`
	}
	Tag struct {
		ID   int64 `gorm:"primaryKey;autoIncrement:false"`
		Name string
	}
	ItemTag struct {
		ItemID int64 `gorm:"primaryKey"`
		TagID  int64 `gorm:"primaryKey"`
		Token  int64 `gorm:"column:fence_token;fence;not null;default:0"`
	}
	Pair struct { // composite key
		A     int64 `gorm:"primaryKey;autoIncrement:false"`
		B     int64 `gorm:"primaryKey;autoIncrement:false"`
		Value int
		Token int64 `gorm:"column:fence_token;fence;not null;default:0"`
	}
	Bare struct { // no primary key
		Name  string
		Value int
		Token int64 `gorm:"column:fence_token;fence;not null;default:0"`
	}
	Mark struct {
		Tok int64 `gorm:"fence;not null;default:0"`
	}
	Wide struct { // the version column is in an embedded struct, under another name
		ID    int64 `gorm:"primaryKey;autoIncrement:false"`
		Value int
		Mark  Mark `gorm:"embedded;embeddedPrefix:m_"`
	}
	Hooked struct { // writes another table before its own
		ID    int64 `gorm:"primaryKey;autoIncrement:false"`
		Value int
		Token int64 `gorm:"column:fence_token;fence;not null;default:0"`
	}
	Named struct { // guarded by WithTables only
		ID         int64 `gorm:"primaryKey;autoIncrement:false"`
		Value      int
		FenceToken int64 `gorm:"not null;default:0"`
	}
	Shadow struct { // the table of Item, without its version column
		ID   int64 `gorm:"primaryKey;autoIncrement:false"`
		Note string
	}
)

func (i Item) FenceResource() string  { return i.SKU }
func (d *Doc) FenceResource() string  { return d.SKU }
func (o Owner) FenceResource() string { return o.SKU }
func (Shadow) TableName() string      { return "items" }

func (h *Hooked) BeforeUpdate(tx *gorm.DB) error {
	return tx.Model(&Boss{ID: 1}).Update("name", "by a hook").Error
}

var models = []any{&Item{}, &Doc{}, &Owner{}, &Badge{}, &Boss{}, &ItemTag{}, &Pair{}, &Bare{}, &Wide{}, &Hooked{}, &Named{}}
